#include "base/topology.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

/* Numbers below PROCESSORS_MAX, one bit each. */
struct number_set {
    uint64_t words[PROCESSORS_MAX / 64];
};

struct processor {
    int number, core, node; /* `core`: the least number of its threads */
    uint64_t speed;         /* as the system rates it; 0: unknown */
    int thread, turn;       /* index in its core, of allowed ones; of its core in its node */
    bool is_slow;
};

static void add_number(struct number_set *s, int number)
{
    s->words[number / 64] |= UINT64_C(1) << number % 64;
}

static bool has_number(const struct number_set *s, int number)
{
    return s->words[number / 64] >> number % 64 & 1;
}

/* The numbers in a text like "0-3,8", up to the first thing that is none. */
static struct number_set read_numbers(const char *text)
{
    struct number_set s = {0};
    for (char *end;; text = end + 1) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text || first < 0 || first >= PROCESSORS_MAX) return s;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text || last < first || last >= PROCESSORS_MAX) return s;
        }
        for (long i = first; i <= last; i++) add_number(&s, (int)i);
        if (*end != ',') return s;
    }
}

static bool read_text(const char *root, const char *path, const char *key, char *out, size_t size)
{
    char whole[PATH_MAX];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof whole && os_read_field(whole, key, out, size);
}

static bool read_of_processor(const char *root, int number, const char *file, char *out,
                              size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", number, file);
    return read_text(root, path, "", out, size);
}

static struct number_set affinity_mask(void)
{
    struct number_set s = {0};
    cpu_set_t mask;
    bool is_known = sched_getaffinity(0, sizeof mask, &mask) == 0;
    for (int i = 0; i < PROCESSORS_MAX && i < CPU_SETSIZE; i++)
        if (is_known ? CPU_ISSET((size_t)i, &mask) : i == 0) add_number(&s, i);
    return s;
}

static struct processor read_processor(const char *root, int number)
{
    struct processor p = {.number = number, .core = number};
    char text[256];
    if (read_of_processor(root, number, "topology/thread_siblings_list", text, sizeof text)) {
        struct number_set siblings = read_numbers(text);
        for (int i = number - 1; i >= 0; i--)
            if (has_number(&siblings, i)) p.core = i;
    }
    if (read_of_processor(root, number, "cpu_capacity", text, sizeof text) ||
        read_of_processor(root, number, "cpufreq/cpuinfo_max_freq", text, sizeof text))
        p.speed = strtoull(text, NULL, 10);
    return p;
}

/* ---- Nodes ------------------------------------------------------------------------------ */

/* Nodes with memory that this process may use. */
static struct number_set memory_nodes(const char *root)
{
    char text[1024];
    struct number_set all = {0}, allowed;
    if (!read_text(root, "/sys/devices/system/node/has_memory", "", text, sizeof text)) return all;
    all = read_numbers(text);
    if (!read_text(root, "/proc/self/status", "Mems_allowed_list", text, sizeof text)) return all;
    allowed = read_numbers(text);
    for (size_t i = 0; i < PROCESSORS_MAX / 64; i++) all.words[i] &= allowed.words[i];
    return all;
}

static void read_nodes(struct topology *t, struct processor *p, const char *root)
{
    struct number_set nodes = memory_nodes(root);
    for (int node = 0; node < NODES_MAX; node++) {
        char path[96], text[4096];
        bool has_processors = false;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (!read_text(root, path, "", text, sizeof text)) continue;
        struct number_set near = read_numbers(text);
        for (int i = 0; i < t->n_processors; i++) {
            if (!has_number(&near, p[i].number)) continue;
            p[i].node = node;
            has_processors = true;
        }
        if (!has_processors || !has_number(&nodes, node)) continue;
        t->nodes |= UINT64_C(1) << node;
        t->n_nodes++;
    }
    if (t->n_nodes == 0) t->n_nodes = 1;
}

/* ---- Order ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    const struct processor *x = a, *y = b;
    int differences[] = {x->thread - y->thread, x->is_slow - y->is_slow, x->turn - y->turn,
                         x->node - y->node, x->number - y->number};
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        if (differences[i]) return differences[i];
    return 0;
}

/* Processors come with rising numbers. The fast cores of a processor may differ in speed by some
 * percent. */
static void rank(struct topology *t, struct processor *p)
{
    uint64_t fastest = 0;
    int turns[2][NODES_MAX] = {0};
    for (int i = 0; i < t->n_processors; i++)
        if (p[i].speed > fastest) fastest = p[i].speed;
    for (int i = 0; i < t->n_processors; i++) {
        p[i].is_slow = p[i].speed && p[i].speed < fastest / 5 * 4;
        int first = i;
        for (int k = i - 1; k >= 0; k--)
            if (p[k].core == p[i].core) first = k, p[i].thread++;
        p[i].turn = first < i ? p[first].turn : turns[p[i].is_slow][p[i].node]++;
        t->n_cores += p[i].thread == 0;
        t->n_fast_cores += p[i].thread == 0 && !p[i].is_slow;
    }
}

void topology_read(struct topology *out, const char *root, const char *allowed)
{
    struct number_set mask = allowed ? read_numbers(allowed) : affinity_mask();
    struct processor p[PROCESSORS_MAX];
    *out = (struct topology){0};
    for (int i = 0; i < PROCESSORS_MAX; i++)
        if (has_number(&mask, i)) p[out->n_processors++] = read_processor(root, i);
    read_nodes(out, p, root);
    rank(out, p);
    qsort(p, (size_t)out->n_processors, sizeof *p, compare);
    for (int i = 0; i < out->n_processors; i++) out->order[i] = (int16_t)p[i].number;
}

int topology_cores(void)
{
    struct topology t;
    topology_read(&t, "", NULL);
    return t.n_cores > 0 ? t.n_cores : 1;
}
