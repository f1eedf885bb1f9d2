/* What this process may take of the machine: the least of what is free and of what containers and
 * limits leave of it. Each call reads files of Linux anew; a file that cannot be read sets no
 * limit.
 *
 * `root` stands before every path: "" for the machine, a folder with made-up files in tests. */
#ifndef BASE_ALLOWANCE_H
#define BASE_ALLOWANCE_H

#include <stdint.h>

/* Which file or limit an allowance comes from. */
struct allowance_source {
    /* "MemAvailable", "memory.max", "RLIMIT_AS", "cores", "affinity mask", "cpu.max" ... */
    const char *name;
    char path[512]; /* folder of the cgroup, without `root`; else empty */
};

struct memory_allowance {
    uint64_t total;                 /* bytes, of the machine or of the smallest cgroup around us */
    uint64_t available;             /* bytes that can be taken now */
    struct allowance_source source; /* of `available` */
};

struct thread_allowance {
    int count; /* threads that can compute at a time; at least 1 */
    struct allowance_source source;
};

/* The least of MemAvailable, RLIMIT_AS, RLIMIT_DATA, and what each cgroup (version 1 or 2) around
 * this process leaves. File pages that a group can give back count as free. */
struct memory_allowance allowance_memory(const char *root);

/* The least of the physical cores in the affinity mask (or of `cores`, if not 0) and of the
 * processor time that each cgroup around this process may take, rounded up. */
struct thread_allowance allowance_threads(const char *root, int cores);

/* The same for this machine, as plain numbers. */
uint64_t allowed_memory(void);
int allowed_threads(void);

#endif
