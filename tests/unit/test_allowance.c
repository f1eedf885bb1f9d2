/* What a process may take of the machine, on made-up trees of /proc and /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/allowance.h"
#include "support/scratch.h"

static struct scratch tree;

static void put(const char *path, const char *text)
{
    scratch_put(&tree, path, text);
}

/* A machine of 16 GB with 8 GB free. */
static int set_up(void **state)
{
    (void)state;
    scratch_open(&tree);
    put("proc/meminfo", "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_close(&tree);
    return 0;
}

static void use_version_2(const char *group)
{
    char line[256];
    snprintf(line, sizeof line, "0::%s\n", group);
    put("proc/self/cgroup", line);
    put("proc/self/mountinfo", "22 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n"
                               "31 22 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n");
}

static void use_version_1(const char *group)
{
    char lines[512];
    snprintf(lines, sizeof lines, "9:name=systemd:/x\n4:memory:%s\n2:cpu,cpuacct:%s\n", group,
             group);
    put("proc/self/cgroup", lines);
    put("proc/self/mountinfo",
        "35 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "36 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "37 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
}

static void check_memory(uint64_t total, uint64_t available, const char *name, const char *path)
{
    struct memory_allowance m = allowance_memory(tree.path);
    assert_int_equal(m.total, total);
    assert_int_equal(m.available, available);
    assert_string_equal(m.source.name, name);
    assert_string_equal(m.source.path, path);
}

static void check_threads(int count, const char *name, const char *path)
{
    struct thread_allowance t = allowance_threads(tree.path, 8);
    assert_int_equal(t.count, count);
    assert_string_equal(t.source.name, name);
    assert_string_equal(t.source.path, path);
}

static void check_free_machine(void)
{
    check_memory(16384000000, 8192000000, "MemAvailable", "");
    check_threads(8, "cores", "");
}

static void without_groups_it_is_what_is_free(void **state)
{
    (void)state;
    check_free_machine();
    use_version_2("/");
    check_free_machine();
    use_version_2("/some/where/gone");
    check_free_machine();
}

static void a_group_of_version_2_leaves_its_limit_less_what_it_holds_for_good(void **state)
{
    (void)state;
    use_version_2("/box");
    put("sys/fs/cgroup/box/memory.max", "1000000000\n");
    put("sys/fs/cgroup/box/memory.current", "700000000\n");
    put("sys/fs/cgroup/box/memory.stat", "anon 300000000\nfile 360000000\nactive_file 100000000\n"
                                         "inactive_file 200000000\nslab_reclaimable 50000000\n");
    put("sys/fs/cgroup/box/cpu.max", "250000 100000\n");
    check_memory(1000000000, 650000000, "memory.max", "/sys/fs/cgroup/box");
    check_threads(3, "cpu.max", "/sys/fs/cgroup/box");
    put("sys/fs/cgroup/box/memory.high", "400000000\n");
    check_memory(400000000, 50000000, "memory.high", "/sys/fs/cgroup/box");
    put("sys/fs/cgroup/box/memory.max", "max\n");
    put("sys/fs/cgroup/box/memory.high", "max\n");
    put("sys/fs/cgroup/box/cpu.max", "max 100000\n");
    check_free_machine();
}

static void a_group_of_version_1_counts_those_below_it(void **state)
{
    (void)state;
    use_version_1("/box");
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "500000000\n");
    put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "400000000\n");
    put("sys/fs/cgroup/memory/box/memory.stat",
        "active_file 1\ninactive_file 2\nhierarchical_memory_limit 3\n"
        "total_inactive_file 90000000\ntotal_active_file 10000000\n");
    put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
    put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    check_memory(500000000, 200000000, "memory.limit_in_bytes", "/sys/fs/cgroup/memory/box");
    check_threads(1, "cpu.cfs_quota_us", "/sys/fs/cgroup/cpu,cpuacct/box");
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    check_free_machine();
}

static void every_group_around_counts(void **state)
{
    (void)state;
    use_version_2("/a/b/c");
    put("sys/fs/cgroup/a/b/c/memory.max", "900000000\n");
    put("sys/fs/cgroup/a/b/c/memory.current", "100000000\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.max", "2000000000\n");
    put("sys/fs/cgroup/a/memory.current", "1900000000\n");
    put("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/a/cpu.max", "200001 100000\n");
    check_memory(900000000, 100000000, "memory.max", "/sys/fs/cgroup/a");
    check_threads(3, "cpu.max", "/sys/fs/cgroup/a");
}

static void a_full_group_leaves_nothing_and_one_thread_always(void **state)
{
    (void)state;
    use_version_2("/box");
    put("sys/fs/cgroup/box/memory.max", "1000\n");
    put("sys/fs/cgroup/box/memory.current", "2000\n");
    put("sys/fs/cgroup/box/memory.stat", "active_file 500\n");
    put("sys/fs/cgroup/box/cpu.max", "1 100000\n");
    check_memory(1000, 0, "memory.max", "/sys/fs/cgroup/box");
    check_threads(1, "cpu.max", "/sys/fs/cgroup/box");
    put("sys/fs/cgroup/box/memory.stat", "active_file 500000\n");
    check_memory(1000, 1000, "memory.max", "/sys/fs/cgroup/box");
}

static void a_container_sees_its_own_group_as_the_top(void **state)
{
    (void)state;
    use_version_1("/docker/0123/inner");
    put("proc/self/mountinfo",
        "36 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000000\n");
    put("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "400000000\n");
    check_memory(300000000, 300000000, "memory.limit_in_bytes", "/sys/fs/cgroup/memory");
    put("proc/self/cgroup", "4:memory:/../elsewhere\n");
    check_memory(300000000, 300000000, "memory.limit_in_bytes", "/sys/fs/cgroup/memory");
    put("proc/self/cgroup", "4:memory:/docker/01234\n");
    check_memory(300000000, 300000000, "memory.limit_in_bytes", "/sys/fs/cgroup/memory");
}

static void both_versions_may_be_there(void **state)
{
    (void)state;
    put("proc/self/cgroup", "4:memory:/box\n1:cpu:/\n0::/other\n");
    put("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw shared:3 master:4 - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "600000000\n");
    put("sys/fs/cgroup/uni fied/other/cpu.max", "400000 100000\n");
    check_memory(600000000, 600000000, "memory.limit_in_bytes", "/sys/fs/cgroup/memory/box");
    check_threads(4, "cpu.max", "/sys/fs/cgroup/uni fied/other");
}

static void what_is_malformed_is_no_limit(void **state)
{
    (void)state;
    static const char *const groups[] = {
        "", "\n", "0\n", "0:\n", "0::\n", "0::box\n", "::/box\n", "4:memory:\n", ":::::\n",
    };
    static const char *const mounts[] = {
        "",
        "-\n",
        " - \n",
        " - cgroup2\n",
        "31 - cgroup2 cgroup2 rw\n",
        "31 22 0:28 / - cgroup2 cgroup2 rw\n",
        "31 22 0:28 / relative rw - cgroup2 cgroup2 rw\n",
        "31 22 0:28 / /sys/fs/cgroup rw - cgroup\n",
        "31 22 0:28 / /sys/fs/cgroup\\0 rw - cgroup2 cgroup2 rw\n",
    };
    static const char *const numbers[] = {
        "", "\n", "-5\n", "x\n", "1e3\n", "0x10\n", "5k\n", "99999999999999999999999\n", "max"};
    use_version_2("/box");
    put("sys/fs/cgroup/box/memory.max", "1000\n");
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        put("proc/self/cgroup", groups[i]);
        check_free_machine();
    }
    use_version_2("/box");
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        put("proc/self/mountinfo", mounts[i]);
        check_free_machine();
    }
    use_version_2("/box");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        put("sys/fs/cgroup/box/memory.max", numbers[i]);
        put("sys/fs/cgroup/box/cpu.max", numbers[i]);
        check_free_machine();
    }
    put("sys/fs/cgroup/box/cpu.max", "100000\n");
    check_free_machine();
    put("sys/fs/cgroup/box/cpu.max", "100000 0\n");
    check_free_machine();
}

static void limits_of_the_process_count(void **state)
{
    (void)state;
    put("proc/self/status", "Name:\tcarat\nVmSize:\t  200000 kB\nVmData:\t  100000 kB\n");
    put("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             unlimited            unlimited            bytes     \n"
        "Max address space         1000000000           unlimited            bytes     \n");
    check_memory(1000000000, 795200000, "RLIMIT_AS", "");
    put("proc/self/limits",
        "Max data size             300000000            unlimited            bytes     \n"
        "Max address space         1000000000           unlimited            bytes     \n");
    check_memory(300000000, 197600000, "RLIMIT_DATA", "");
}

#if defined(__SANITIZE_ADDRESS__)
enum { HAS_SANITIZER = 1 }; /* its shadow memory takes terabytes of address space */
#else
enum { HAS_SANITIZER = 0 };
#endif

static void the_real_limits_are_read(void **state)
{
    (void)state;
    struct thread_allowance t = allowance_threads("", 0);
    assert_in_range(t.count, 1, 4096);
    assert_int_equal(allowed_threads(), t.count);
    assert_in_range(allowance_memory("").available, 1, allowance_memory("").total);
    if (HAS_SANITIZER) return;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = (rlim_t)1 << 30, .rlim_max = (rlim_t)1 << 30};
        if (setrlimit(RLIMIT_AS, &limit)) _exit(1);
        struct memory_allowance m = allowance_memory("");
        _exit(m.total == 1u << 30 && m.available > 0 && m.available < 1u << 30 ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_groups_it_is_what_is_free),
        TEST(a_group_of_version_2_leaves_its_limit_less_what_it_holds_for_good),
        TEST(a_group_of_version_1_counts_those_below_it),
        TEST(every_group_around_counts),
        TEST(a_full_group_leaves_nothing_and_one_thread_always),
        TEST(a_container_sees_its_own_group_as_the_top),
        TEST(both_versions_may_be_there),
        TEST(what_is_malformed_is_no_limit),
        TEST(limits_of_the_process_count),
        TEST(the_real_limits_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
