/* The rest of a test that needs jansson, in a build without it: one case, which says why it is
 * skipped. */
#ifndef SUPPORT_WITHOUT_JANSSON_H
#define SUPPORT_WITHOUT_JANSSON_H

static void needs_jansson(void **state)
{
    (void)state;
    print_message("built without jansson: skipped\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(needs_jansson)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
