/* Which processors a machine has and in which order threads take them, on made-up trees of /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/allowance.h"
#include "base/cores.h"
#include "base/os.h"
#include "base/topology.h"
#include "support/scratch.h"

static struct scratch tree;

static void put(const char *path, const char *text)
{
    scratch_put(&tree, path, text);
}

static void put_of_processor(int number, const char *file, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/%s", number, file);
    put(path, text);
}

static void put_siblings(int first, int last, const char *text)
{
    for (int i = first; i <= last; i++) put_of_processor(i, "topology/thread_siblings_list", text);
}

static int set_up(void **state)
{
    (void)state;
    scratch_open(&tree);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_close(&tree);
    return 0;
}

static struct topology read_machine(const char *allowed)
{
    struct topology t;
    topology_read(&t, tree.path, allowed);
    return t;
}

static void check_order(const struct topology *t, const int *expected, int n)
{
    assert_int_equal(t->n_processors, n);
    for (int i = 0; i < n; i++) assert_int_equal(t->order[i], expected[i]);
}

static void lists_of_numbers_are_read_up_to_what_is_none(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bits;
    } cases[] = {{"0-3,8", 0x10f},
                 {"5", 0x20},
                 {"", 0},
                 {"x", 0},
                 {"1,x,4", 2},
                 {"3-1", 0},
                 {"-1", 0},
                 {"2-", 0},
                 {"9999", 0},
                 {"0-9999", 0},
                 {"1-2\n", 6},
                 {"1,,2", 2},
                 {"0,63", 1 | UINT64_C(1) << 63}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct topology t = read_machine(cases[i].text);
        uint64_t bits = 0;
        for (int k = 0; k < t.n_processors; k++) bits |= UINT64_C(1) << t.order[k];
        assert_int_equal(bits, cases[i].bits);
    }
}

/* Two sockets of 16 cores; processor i + 32 is the other thread of core i. */
static void put_two_sockets(void)
{
    for (int i = 0; i < 64; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d,%d\n", i % 32, i % 32 + 32);
        put_of_processor(i, "topology/thread_siblings_list", text);
    }
    put("sys/devices/system/node/has_memory", "0-1\n");
    put("sys/devices/system/node/node0/cpulist", "0-15,32-47\n");
    put("sys/devices/system/node/node1/cpulist", "16-31,48-63\n");
}

static void threads_take_a_core_each_of_both_nodes_in_turn_before_they_share_one(void **state)
{
    (void)state;
    put_two_sockets();
    struct topology t = read_machine("0-63");
    assert_int_equal(t.n_cores, 32);
    assert_int_equal(t.n_fast_cores, 32);
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.nodes, 3);
    int expected[64];
    for (int i = 0; i < 64; i++) expected[i] = i / 2 % 16 + i % 2 * 16 + i / 32 * 32;
    check_order(&t, expected, 64);
}

static void memory_that_may_not_be_used_is_no_node(void **state)
{
    (void)state;
    put_two_sockets();
    put("proc/self/status", "Name:\tcarat\nMems_allowed_list:\t1\n");
    struct topology t = read_machine("16-19,48-49");
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.nodes, 2);
    check_order(&t, (int[]){16, 17, 18, 19, 48, 49}, 6);
}

/* Two fast cores of two threads and four slow ones of one, which the system numbers last. */
static void fast_cores_come_before_slow_ones_and_those_before_second_threads(void **state)
{
    (void)state;
    static const char *const speeds[] = {"4900000", "4900000", "5100000", "5100000",
                                         "3600000", "3600000", "3600000", "3600000"};
    for (int i = 0; i < 8; i++) {
        char text[16];
        snprintf(text, sizeof text, i < 4 ? "%d-%d\n" : "%d\n", i < 4 ? i / 2 * 2 : i,
                 i / 2 * 2 + 1);
        put_of_processor(i, "topology/thread_siblings_list", text);
        put_of_processor(i, "cpufreq/cpuinfo_max_freq", speeds[i]);
    }
    struct topology t = read_machine("0-7");
    assert_int_equal(t.n_cores, 6);
    assert_int_equal(t.n_fast_cores, 2);
    check_order(&t, (int[]){0, 2, 4, 5, 6, 7, 1, 3}, 8);
    for (int i = 0; i < 8; i++) /* what the scheduler is told counts more: the last are fast */
        put_of_processor(i, "cpu_capacity", i < 4 ? "400\n" : "1024\n");
    t = read_machine("0-7");
    assert_int_equal(t.n_fast_cores, 4);
    check_order(&t, (int[]){4, 5, 6, 7, 0, 2, 1, 3}, 8);
}

/* Eight fast cores of two threads and sixteen slow ones, as desktop processors have them. */
static void put_hybrid(void)
{
    for (int i = 0; i < 32; i++) {
        char text[16];
        snprintf(text, sizeof text, i < 16 ? "%d-%d\n" : "%d\n", i < 16 ? i / 2 * 2 : i,
                 i / 2 * 2 + 1);
        put_of_processor(i, "topology/thread_siblings_list", text);
        put_of_processor(i, "cpufreq/cpuinfo_max_freq",
                         i < 16 ? (i / 2 == 2 ? "5800000\n" : "5500000\n") : "4300000\n");
    }
    put("sys/devices/system/node/has_memory", "0\n");
    put("sys/devices/system/node/node0/cpulist", "0-31\n");
}

static void of_a_hybrid_processor_each_part_may_be_all_there_is(void **state)
{
    (void)state;
    put_hybrid();
    struct topology t = read_machine("0-31");
    assert_int_equal(t.n_cores, 24);
    assert_int_equal(t.n_fast_cores, 8);
    for (int i = 0; i < 8; i++) assert_int_equal(t.order[i], 2 * i);
    for (int i = 8; i < 24; i++) assert_int_equal(t.order[i], i + 8);
    for (int i = 24; i < 32; i++) assert_int_equal(t.order[i], 2 * (i - 24) + 1);
    t = read_machine("16-31"); /* slow only next to fast ones */
    assert_int_equal(t.n_cores, 16);
    assert_int_equal(t.n_fast_cores, 16);
    t = read_machine("1,3,30-31"); /* second threads of fast cores, alone on them */
    assert_int_equal(t.n_cores, 4);
    assert_int_equal(t.n_fast_cores, 2);
    check_order(&t, (int[]){1, 3, 30, 31}, 4);
}

static void a_quota_is_less_than_the_cores(void **state)
{
    (void)state;
    put_hybrid();
    put("proc/self/cgroup", "0::/box\n");
    put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    struct topology t = read_machine("0-31");
    assert_int_equal(allowance_threads(tree.path, t.n_cores).count, 24);
    put("sys/fs/cgroup/box/cpu.max", "350000 100000\n");
    assert_int_equal(allowance_threads(tree.path, t.n_cores).count, 4);
    t = read_machine("16-17");
    assert_int_equal(allowance_threads(tree.path, t.n_cores).count, 2);
}

static void cores_of_four_threads_count_once_whichever_may_be_used(void **state)
{
    (void)state;
    put_siblings(0, 3, "0-3\n");
    put_siblings(4, 7, "4-7\n");
    struct topology t = read_machine("1-3,6");
    assert_int_equal(t.n_cores, 2);
    check_order(&t, (int[]){1, 6, 2, 3}, 4);
    t = read_machine("0-7");
    check_order(&t, (int[]){0, 4, 1, 5, 2, 6, 3, 7}, 8);
}

static void a_container_of_half_cores_counts_each_once(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d-%d\n", i / 2 * 2, i / 2 * 2 + 1);
        put_of_processor(i, "topology/thread_siblings_list", text);
    }
    struct topology t = read_machine("3-5");
    assert_int_equal(t.n_cores, 2);
    check_order(&t, (int[]){3, 4, 5}, 3);
}

/* A processor that is off has no files, and the other thread of its core has none beside it. */
static void processors_that_are_off_are_no_siblings(void **state)
{
    (void)state;
    put_of_processor(0, "topology/thread_siblings_list", "0\n");
    put_of_processor(2, "topology/thread_siblings_list", "2-3\n");
    put_of_processor(3, "topology/thread_siblings_list", "2-3\n");
    struct topology t = read_machine("0,2-3");
    assert_int_equal(t.n_cores, 2);
    check_order(&t, (int[]){0, 2, 3}, 3);
}

static void without_files_every_processor_is_a_core_near_all_memory(void **state)
{
    (void)state;
    struct topology t = read_machine("0-2");
    assert_int_equal(t.n_cores, 3);
    assert_int_equal(t.n_fast_cores, 3);
    assert_int_equal(t.n_nodes, 1);
    check_order(&t, (int[]){0, 1, 2}, 3);
    put_of_processor(1, "topology/thread_siblings_list", "rubbish\n");
    put_of_processor(1, "cpu_capacity", "rubbish\n");
    t = read_machine("1");
    assert_int_equal(t.n_cores, 1);
    check_order(&t, (int[]){1}, 1);
}

/* The memory of a GPU or behind CXL is a node without processors: reading it is slow. */
static void memory_far_from_the_processors_is_no_node(void **state)
{
    (void)state;
    put_two_sockets();
    put("sys/devices/system/node/has_memory", "0-3\n");
    put("sys/devices/system/node/node2/cpulist", "\n");
    put("sys/devices/system/node/node3/cpulist", "\n");
    struct topology t = read_machine("0-63");
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.nodes, 3);
    t = read_machine("20-25"); /* nor is that of the other socket, for a process on one */
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.nodes, 2);
}

static void processors_without_memory_of_their_own_take_their_turn(void **state)
{
    (void)state;
    put_two_sockets();
    put("sys/devices/system/node/has_memory", "0\n");
    struct topology t = read_machine("0-31");
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.nodes, 1);
    for (int i = 0; i < 32; i++) assert_int_equal(t.order[i], i / 2 + i % 2 * 16);
    t = read_machine("16-31"); /* the system places their memory as near as there is some */
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.nodes, 0);
}

static void a_container_that_hides_its_processors_has_a_core_each_and_its_quota(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/cpu.max", "600000 100000\n");
    struct topology t = read_machine("8-23");
    assert_int_equal(t.n_cores, 16);
    assert_int_equal(t.nodes, 0);
    assert_int_equal(allowance_threads(tree.path, t.n_cores).count, 6);
}

/* ---- Threads on processors ---------------------------------------------------------------- */

/* Threads on each core and node when so many are pinned; cores of a node are neighbours, and their
 * other threads come after all first ones. */
static void check_spread(const struct topology *t, int n_cores, int n_nodes, int n_threads)
{
    int taken[64] = {0}, on_core[64] = {0}, on_node[64] = {0};
    assert_true(n_threads <= 64);
    for (int i = 0; i < n_threads; i++) {
        taken[i] = cores_pin(t);
        assert_in_range(taken[i], 0, 2 * n_cores - 1);
        on_core[taken[i] % n_cores]++;
        on_node[taken[i] % n_cores * n_nodes / n_cores]++;
    }
    for (int i = 0; i < n_cores; i++)
        assert_in_range(on_core[i], n_threads / n_cores, (n_threads - 1) / n_cores + 1);
    for (int i = 0; i < n_nodes; i++)
        assert_in_range(on_node[i], n_threads / n_nodes, (n_threads - 1) / n_nodes + 1);
    for (int i = 0; i < n_threads; i++) cores_unpin(taken[i]);
}

static void threads_spread_over_cores_and_nodes_whatever_their_number(void **state)
{
    (void)state;
    static const int numbers[] = {1, 2, 3, 5, 16, 31, 32, 33, 64};
    put_two_sockets();
    struct topology two = read_machine("0-63"), one = read_machine("0-15,32-47");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        check_spread(&two, 32, 2, numbers[i]);
    int cores[64], taken[64] = {0};
    for (int i = 0; i < 64; i++) { /* twice as many as processors: two on each */
        cores[i] = cores_pin(&one);
        assert_int_equal(taken[cores[i]]++, i / 32);
    }
    for (int i = 0; i < 64; i++) cores_unpin(cores[i]);
}

static void engines_next_to_each_other_take_other_cores(void **state)
{
    (void)state;
    put_two_sockets();
    struct topology t = read_machine("0-63");
    int taken[32];
    for (int i = 0; i < 32; i++) { /* four engines of eight threads */
        taken[i] = cores_pin(&t);
        assert_int_equal(taken[i], t.order[i]);
    }
    for (int i = 8; i < 16; i++) cores_unpin(taken[i]);
    for (int i = 8; i < 16; i++) assert_int_equal(cores_pin(&t), taken[i]);
    for (int i = 0; i < 32; i++) cores_unpin(taken[i]);
    t.n_processors = 0;
    assert_int_equal(cores_pin(&t), -1);
    cores_unpin(-1);
}

static void the_real_machine_is_read(void **state)
{
    (void)state;
    struct topology t;
    topology_read(&t, "", NULL);
    assert_int_equal(t.n_processors, os_processors());
    assert_int_equal(topology_cores(), t.n_cores);
    assert_in_range(t.n_cores, 1, t.n_processors);
    assert_true(t.n_fast_cores >= 1 && t.n_fast_cores <= t.n_cores);
    assert_true(t.n_nodes >= 1);
}

/* Where the system lets us say so at all; containers may forbid it. */
static void pages_spread_over_the_nodes_that_there_are_can_be_used(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20 };
    struct topology t;
    topology_read(&t, "", NULL);
    char *pages = os_pages_take(BYTES);
    assert_non_null(pages);
    bool is_spread = os_pages_spread(pages, BYTES, t.nodes ? t.nodes : 1);
    for (int i = 0; i < BYTES; i += 4096) {
        assert_int_equal(pages[i], 0);
        pages[i] = 1;
    }
    os_pages_give(pages, BYTES);
    if (!is_spread) {
        print_message("skipped: the system does not let this process place memory\n");
        skip();
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lists_of_numbers_are_read_up_to_what_is_none),
        TEST(threads_take_a_core_each_of_both_nodes_in_turn_before_they_share_one),
        TEST(memory_that_may_not_be_used_is_no_node),
        TEST(fast_cores_come_before_slow_ones_and_those_before_second_threads),
        TEST(of_a_hybrid_processor_each_part_may_be_all_there_is),
        TEST(a_quota_is_less_than_the_cores),
        TEST(cores_of_four_threads_count_once_whichever_may_be_used),
        TEST(a_container_of_half_cores_counts_each_once),
        TEST(processors_that_are_off_are_no_siblings),
        TEST(without_files_every_processor_is_a_core_near_all_memory),
        TEST(memory_far_from_the_processors_is_no_node),
        TEST(processors_without_memory_of_their_own_take_their_turn),
        TEST(a_container_that_hides_its_processors_has_a_core_each_and_its_quota),
        TEST(threads_spread_over_cores_and_nodes_whatever_their_number),
        TEST(engines_next_to_each_other_take_other_cores),
        TEST(the_real_machine_is_read),
        TEST(pages_spread_over_the_nodes_that_there_are_can_be_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
