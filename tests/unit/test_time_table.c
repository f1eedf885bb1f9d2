/* Where the time of steps goes: rows are found by name, and none is blamed for another's work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/time_table.h"

static void add(struct time_table *t, int kind, double seconds)
{
    char name[16];
    snprintf(name, sizeof name, "kind %d", kind);
    time_table_add(t, &(struct time_work){.kind = name}, seconds);
}

static void work_of_one_kind_shares_a_row(void **state)
{
    (void)state;
    static struct time_table t;
    for (int i = 0; i < 10; i++) add(&t, i % 2, 1);
    assert_int_equal(t.n_rows, 2);
    assert_string_equal(t.rows[1].name, "kind 1");
    assert_int_equal(t.rows[1].count, 5);
    assert_true(t.rows[1].seconds == 5);
}

static void kinds_without_a_row_are_counted_as_everything_else(void **state)
{
    (void)state;
    static struct time_table t;
    enum { KINDS = TIME_ROWS_MAX + 9 };
    for (int i = 0; i < KINDS; i++) add(&t, i, 1);
    const struct time_row *last = &t.rows[TIME_ROWS_MAX - 1], *before = last - 1;
    assert_int_equal(t.n_rows, TIME_ROWS_MAX);
    assert_string_equal(before->name, "kind 62");
    assert_int_equal(before->count, 1);
    assert_string_equal(last->name, "everything else");
    assert_int_equal(last->count, KINDS - (TIME_ROWS_MAX - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_of_one_kind_shares_a_row),
        cmocka_unit_test(kinds_without_a_row_are_counted_as_everything_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
