/* Grammars that the server keeps: the same request gets the same one, any other its own, and no
 * one is lost or freed while it is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "json/json_tree.h"
#include "server/grammars.h"

enum { PLACES = 32 };

static carat_grammar *take(struct grammars *s, const char *request)
{
    struct json_tree tree;
    carat_grammar *grammar;
    assert_int_equal(json_tree_read(&tree, request, strlen(request), JSON_PLAIN, NULL), CARAT_OK);
    assert_int_equal(grammars_take(s, &tree.root, &grammar, NULL), CARAT_OK);
    json_tree_free(&tree);
    return grammar;
}

/* {"json_schema": {"const": n}} */
static carat_grammar *take_number(struct grammars *s, int n)
{
    char request[64];
    snprintf(request, sizeof request, "{\"json_schema\": {\"const\": %d}}", n);
    return take(s, request);
}

static void the_same_request_gets_the_same_grammar(void **state)
{
    struct grammars *s;
    assert_int_equal(grammars_open(&s, *state, NULL), CARAT_OK);
    carat_grammar *one = take_number(s, 1), *two = take_number(s, 2);
    carat_grammar *thinks = take(s, "{\"json_schema\": {\"const\": 1}, \"enable_thinking\": true}");
    assert_non_null(one);
    assert_ptr_equal(take_number(s, 1), one);
    assert_ptr_not_equal(two, one);
    assert_ptr_not_equal(thinks, one);
    assert_null(take(s, "{\"messages\": []}"));
    for (int i = 0; i < 2; i++) grammars_give(s, one);
    assert_ptr_equal(take_number(s, 1), one); /* kept although nobody had it */
    grammars_give(s, one);
    grammars_give(s, two);
    grammars_give(s, thinks);
    grammars_give(s, NULL);
    grammars_close(s);
}

static void more_than_there_are_places_for_are_their_users_alone(void **state)
{
    struct grammars *s;
    carat_grammar *all[PLACES + 2];
    long before = mem_blocks_live();
    assert_int_equal(grammars_open(&s, *state, NULL), CARAT_OK);
    for (int i = 0; i < PLACES + 2; i++) all[i] = take_number(s, i);
    assert_ptr_equal(take_number(s, 0), all[0]);
    grammars_give(s, all[0]);
    carat_grammar *again = take_number(s, PLACES); /* had no place */
    assert_ptr_not_equal(again, all[PLACES]);
    grammars_give(s, again);
    for (int i = 0; i < PLACES + 2; i++) grammars_give(s, all[i]);
    for (int i = 0; i < PLACES; i++)
        grammars_give(s, take_number(s, 100 + i)); /* in their places */
    grammars_close(s);
    assert_int_equal(mem_blocks_live(), before);
}

static void what_is_refused_leaves_nothing(void **state)
{
    struct grammars *s;
    struct json_tree tree;
    struct carat_error err = {0};
    carat_grammar *grammar;
    static const char request[] = "{\"grammar\": \"root ::= nosuch\"}";
    assert_int_equal(grammars_open(&s, *state, NULL), CARAT_OK);
    assert_int_equal(json_tree_read(&tree, request, strlen(request), JSON_PLAIN, NULL), CARAT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(grammars_take(s, &tree.root, &grammar, &err), CARAT_EUSAGE);
        assert_null(grammar);
    }
    json_tree_free(&tree);
    grammars_close(s);
}

static int open_model(void **state)
{
    static const char path[] = CARAT_SOURCE_DIR "/tests/golden/fixtures/e2b-q8_0.gguf";
    carat_model *model;
    if (carat_model_open(&model, path, NULL) != CARAT_OK) return -1;
    *state = model;
    return 0;
}

static int close_model(void **state)
{
    carat_model_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_request_gets_the_same_grammar),
        cmocka_unit_test(more_than_there_are_places_for_are_their_users_alone),
        cmocka_unit_test(what_is_refused_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
