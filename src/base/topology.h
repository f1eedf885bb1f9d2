/* The processors of this machine: which are threads of one core, which cores are fast, which memory
 * is near them. Read from Linux's files below /sys and /proc; a file that cannot be read says
 * nothing: each processor is then a core, all are alike and near all memory.
 *
 * `root` stands before every path: "" for the machine, a folder with made-up files in tests. */
#ifndef BASE_TOPOLOGY_H
#define BASE_TOPOLOGY_H

#include <stdint.h>

enum { PROCESSORS_MAX = 1024, NODES_MAX = 64 };

struct topology {
    int n_processors;          /* that may be used */
    int n_cores, n_fast_cores; /* of these; fast: not much slower than the fastest */
    /* Nodes of these processors whose memory may be used; at least 1. The memory of other nodes (of
     * other processors, of a GPU, behind CXL) is farther away. */
    int n_nodes;
    uint64_t nodes; /* a bit each; 0: unknown, or the processors' nodes have no memory */
    /* The processors in the order in which threads should take them: one of each fast core, nodes
     * in turn, then one of each slow core, then the other threads of the cores. */
    int16_t order[PROCESSORS_MAX];
};

/* `allowed`: a list like "0-3,8" of the processors that may be used, read up to the first thing
 * that is no number below PROCESSORS_MAX; NULL: those in the affinity mask of this thread. */
void topology_read(struct topology *out, const char *root, const char *allowed);

/* Cores of this machine of which this thread may use a processor, slow ones too; at least 1. */
int topology_cores(void);

#endif
