/* The report of `carat bench --load`: a table for people, or rows of fields. vLLM's benchmark gives
 * the names of fields that it has too. */
#ifndef CLI_LOAD_REPORT_H
#define CLI_LOAD_REPORT_H

#include "cli/bench_facts.h"
#include "cli/load_stats.h"

struct load_row { /* one group, or all, of one repetition */
    const struct load_plan *plan;
    const struct load_run *run;
    const struct load_stats *stats;
    int32_t group; /* -1: all */
    int32_t repetition, n_seq;
    const struct carat_memory *memory; /* of the engine */
    char date[32];                     /* as vLLM writes it: 20260731-235959 */
};

struct load_report {
    const char *format; /* "md", or one of field_rows_add */
    bool is_error;      /* goes to standard error */
    bool has_rows;
};

/* CARAT_EMEMORY. */
int load_report_add(struct load_report *report, const struct bench_facts *facts,
                    const struct bench_setting *setting, const struct load_row *row,
                    struct carat_error *err);
void load_report_end(struct load_report *report, bool is_whole);

#endif
