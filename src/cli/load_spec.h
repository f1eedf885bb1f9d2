/* What `carat bench --load` asks for: groups of requests that run at the same time. */
#ifndef CLI_LOAD_SPEC_H
#define CLI_LOAD_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/load_key_list.h"

enum { LOAD_GROUPS_MAX = 16, LOAD_NAME_MAX = 32, LOAD_FILE_MAX = 256 };

struct load_group {
    const char *text; /* as given; borrowed */
    char name[LOAD_NAME_MAX], after_name[LOAD_NAME_MAX], during_name[LOAD_NAME_MAX];
    char schema[LOAD_FILE_MAX]; /* a path without commas; "": answers are free */
    int32_t users;              /* of a closed loop; 0: open, or all at once */
    double rate, burstiness;
    int32_t requests, warmup, turns, chats;
    int32_t in, in_next, out, prefix, prefixes, priority, keys, salts;
    bool uses_cache;
    double in_spread, out_spread, think, delay, ramp, cancel, deadline, temperature;
    double ttft_goal, tpot_goal, e2el_goal; /* milliseconds; 0: any time is good */
    int32_t after, during;                  /* indices of groups; -1: none */
};

/* Reads all groups and fills in defaults. CARAT_EUSAGE names group, key and what is expected. */
int load_spec_read(const char *const *texts, size_t n, struct load_group groups[LOAD_GROUPS_MAX],
                   struct carat_error *err);

/* Positions that the longest chat of a group can take, and how many requests can run at once. */
int64_t load_positions(const struct load_group *g);
int32_t load_parallel(const struct load_group *g);

#endif
