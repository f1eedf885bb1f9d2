/* Where the CPU backend puts memory on a made-up machine with several nodes: what it asks of the
 * system. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/topology.h"

static struct topology machine; /* without nodes: the real one */

/* The linker puts both in front of the real ones (see tests/CMakeLists.txt). */
void __real_topology_read(struct topology *out, const char *root, const char *allowed);
void __wrap_topology_read(struct topology *out, const char *root, const char *allowed);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

void __wrap_topology_read(struct topology *out, const char *root, const char *allowed)
{
    __real_topology_read(out, root, allowed);
    if (!machine.n_nodes) return;
    out->n_nodes = machine.n_nodes;
    out->nodes = machine.nodes;
}

/* What was asked of mbind last. */
static struct {
    int count;
    uintptr_t first;
    uint64_t bytes, nodes, further_nodes, n_bits;
    long policy, flags;
    bool is_refused;
} placed;

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (number != SYS_mbind) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const uint64_t *mask = (const uint64_t *)a[3]; /* NOLINT: a pointer, as the system takes it */
    placed.count++;
    placed.first = (uintptr_t)a[0];
    placed.bytes = (uint64_t)a[1];
    placed.policy = a[2];
    placed.nodes = mask[0];
    placed.n_bits = (uint64_t)a[4];
    placed.further_nodes = placed.n_bits > 65 ? mask[1] : 0;
    placed.flags = a[5];
    return placed.is_refused ? -1 : 0;
}

static int forget(void **state)
{
    (void)state;
    machine = (struct topology){0};
    placed.count = 0;
    placed.is_refused = false;
    return 0;
}

/* Takes memory of the backend, writes and reads all of it, and gives it back. */
static void use_memory(size_t bytes)
{
    const struct backend *b;
    struct device *device;
    struct device_options options = {.n_threads = 1};
    struct carat_error err = {0};
    void *memory;
    assert_int_equal(backend_find(&b, "cpu", &err), 0);
    assert_int_equal(b->open(&device, 0, &options, &err), 0);
    assert_int_equal(b->alloc(device, bytes, &memory, &err), 0);
    if (placed.count) {
        assert_true(placed.first % 4096 == 0 && placed.first <= (uintptr_t)memory);
        assert_true(placed.first + placed.bytes >= (uintptr_t)memory + bytes);
    }
    for (size_t i = 0; i < bytes; i += 4096) {
        assert_int_equal(((char *)memory)[i], 0);
        ((char *)memory)[i] = 1;
    }
    b->free(device, memory);
    b->close(device);
}

enum { LARGE = 32 << 20, SMALL = 1 << 20, INTERLEAVE = 3 };

static void large_memory_is_spread_over_all_nodes_before_it_is_touched(void **state)
{
    (void)state;
    static const uint64_t nodes[] = {3, 5, 0xff, UINT64_C(1) << 63 | 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        forget(state);
        machine = (struct topology){.n_nodes = __builtin_popcountll(nodes[i]), .nodes = nodes[i]};
        use_memory(LARGE);
        assert_int_equal(placed.count, 1);
        assert_int_equal(placed.policy, INTERLEAVE);
        assert_true(placed.nodes == nodes[i]);
        assert_int_equal(placed.further_nodes, 0);
        assert_true(placed.n_bits > 64); /* the system reads one bit less than it is told */
        assert_int_equal(placed.flags, 0);
    }
}

static void one_node_or_little_memory_is_left_to_the_system(void **state)
{
    (void)state;
    machine = (struct topology){.n_nodes = 1, .nodes = 2};
    use_memory(LARGE);
    machine = (struct topology){.n_nodes = 1}; /* the processors' nodes have no memory */
    use_memory(LARGE);
    machine = (struct topology){.n_nodes = 2, .nodes = 3};
    use_memory(SMALL);
    assert_int_equal(placed.count, 0);
}

/* As containers do. */
static void memory_can_be_used_if_the_system_refuses_to_place_it(void **state)
{
    (void)state;
    machine = (struct topology){.n_nodes = 2, .nodes = 3};
    placed.is_refused = true;
    use_memory(LARGE);
    assert_int_equal(placed.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(large_memory_is_spread_over_all_nodes_before_it_is_touched, forget),
        cmocka_unit_test_setup(one_node_or_little_memory_is_left_to_the_system, forget),
        cmocka_unit_test_setup(memory_can_be_used_if_the_system_refuses_to_place_it, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
