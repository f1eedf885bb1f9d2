/* What a row of bench says about program, machine, model and engine, besides what was measured. */
#ifndef CLI_BENCH_FACTS_H
#define CLI_BENCH_FACTS_H

#include "cli/bench_setting.h"
#include "cli/field_rows.h"

struct bench_facts { /* the same in every row of a model */
    const struct carat_model_info *info;
    const char *path, *backend;
    bool is_exact;          /* --precision fp32 */
    char type[64];          /* "gemma4 E4B Q8_0" */
    char cpu[128], gpu[96]; /* gpu "": no GPU computes */
    int32_t n_gpu_layers;   /* layers on it */
    int32_t main_gpu;
};

/* Before the engine is open, and after. Texts are borrowed from the session. */
void bench_facts_init(struct bench_facts *facts, const struct options *o, const struct session *s);
void bench_facts_note_engine(struct bench_facts *facts, const struct session *s);

/* The type of the cache: as asked, or what auto means. */
const char *bench_kv_type(const struct bench_facts *facts, const struct bench_setting *setting);

/* llama-bench's keys, from build_commit to no_host, in its order. Returns their number. */
enum { BENCH_FACTS = 32 };
size_t bench_facts_fields(const struct bench_facts *facts, const struct bench_setting *setting,
                          struct field out[BENCH_FACTS]);

#endif
