/* Handing over between threads: everything comes back once, in order, and nothing after it was
 * withdrawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/inbox.h"
#include "server/workers.h"

enum { ITEMS = 2000 };

struct item {
    struct work work;
    struct news news;
    int runs;
};

struct desk {
    struct inbox inbox;
    atomic_int wakes, may_run;
};

static void run(void *user, void *owner)
{
    struct desk *desk = user;
    struct item *item = owner;
    while (!atomic_load(&desk->may_run)) usleep(100);
    item->runs++;
    if (inbox_add(&desk->inbox, &item->news)) atomic_fetch_add(&desk->wakes, 1);
}

static void what_is_added_comes_back_once(void **state)
{
    (void)state;
    static struct item items[ITEMS];
    struct desk desk = {.may_run = 1};
    struct workers *workers;
    int n = 0;
    inbox_init(&desk.inbox);
    assert_int_equal(workers_open(&workers, 3, ITEMS, run, &desk, NULL), CARAT_OK);
    for (int i = 0; i < ITEMS; i++) {
        items[i] = (struct item){.work.owner = &items[i], .news.owner = &items[i]};
        assert_true(workers_add(workers, &items[i].work));
    }
    while (n < ITEMS) {
        struct item *item = inbox_take(&desk.inbox);
        if (item)
            n++;
        else
            usleep(100);
    }
    assert_null(inbox_take(&desk.inbox));
    workers_close(workers);
    for (int i = 0; i < ITEMS; i++) assert_int_equal(items[i].runs, 1);
    assert_in_range(atomic_load(&desk.wakes), 1, ITEMS);
    inbox_deinit(&desk.inbox);
}

static void what_waits_can_be_withdrawn_and_is_bounded(void **state)
{
    (void)state;
    enum { QUEUE = 4 };
    struct item items[QUEUE + 2];
    struct desk desk = {.may_run = 0};
    struct workers *workers;
    inbox_init(&desk.inbox);
    assert_int_equal(workers_open(&workers, 1, QUEUE, run, &desk, NULL), CARAT_OK);
    for (int i = 0; i < QUEUE + 2; i++)
        items[i] = (struct item){.work.owner = &items[i], .news.owner = &items[i]};
    assert_true(workers_add(workers, &items[0].work));
    while (workers_waiting(workers) > 0) usleep(100); /* the worker has it */
    for (int i = 1; i <= QUEUE; i++) assert_true(workers_add(workers, &items[i].work));
    assert_false(workers_add(workers, &items[QUEUE + 1].work));
    assert_false(workers_withdraw(workers, &items[0].work));
    assert_true(workers_withdraw(workers, &items[2].work));
    assert_false(workers_withdraw(workers, &items[2].work));
    assert_int_equal(workers_waiting(workers), QUEUE - 1);
    atomic_store(&desk.may_run, 1);
    for (int i = 0; i < QUEUE;) i += inbox_take(&desk.inbox) != NULL;
    workers_close(workers);
    assert_int_equal(items[2].runs, 0);
    assert_int_equal(items[1].runs, 1);
    inbox_deinit(&desk.inbox);
}

static void large_work_leaves_one_thread_for_small(void **state)
{
    (void)state;
    struct item items[3];
    struct desk desk = {.may_run = 0};
    struct workers *workers;
    inbox_init(&desk.inbox);
    assert_int_equal(workers_open(&workers, 2, 8, run, &desk, NULL), CARAT_OK);
    for (int i = 0; i < 3; i++) {
        items[i] =
            (struct item){.work = {.owner = &items[i], .is_large = i < 2}, .news.owner = &items[i]};
        assert_true(workers_add(workers, &items[i].work));
    }
    while (workers_waiting(workers) > 1) usleep(100);
    usleep(20000);
    assert_false(
        workers_withdraw(workers, &items[2].work)); /* begun, before the second large one */
    assert_int_equal(workers_waiting(workers), 1);
    atomic_store(&desk.may_run, 1);
    for (int i = 0; i < 3;) i += inbox_take(&desk.inbox) != NULL;
    workers_close(workers);
    for (int i = 0; i < 3; i++) assert_int_equal(items[i].runs, 1);
    inbox_deinit(&desk.inbox);
}

static void news_are_in_the_inbox_at_most_once(void **state)
{
    (void)state;
    struct inbox inbox;
    struct news a = {.owner = &a}, b = {.owner = &b};
    inbox_init(&inbox);
    assert_true(inbox_add(&inbox, &a));
    assert_false(inbox_add(&inbox, &a));
    assert_false(inbox_add(&inbox, &b));
    inbox_remove(&inbox, &a);
    inbox_remove(&inbox, &a);
    assert_ptr_equal(inbox_take(&inbox), &b);
    assert_null(inbox_take(&inbox));
    assert_true(inbox_add(&inbox, &b));
    assert_ptr_equal(inbox_take(&inbox), &b);
    inbox_deinit(&inbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_added_comes_back_once),
        cmocka_unit_test(what_waits_can_be_withdrawn_and_is_bounded),
        cmocka_unit_test(large_work_leaves_one_thread_for_small),
        cmocka_unit_test(news_are_in_the_inbox_at_most_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
