#include "engine/plans.h"

#include "base/assert.h"

/* What every plan of a table is made from. */
struct plan_source {
    const struct backend *backend;
    const struct device *device;
    const struct gemma_config *config;
    const struct weights *weights;
    const struct kv_cache *caches;
};

static int add_bucket(struct plans *p, const struct plan_source *from, int32_t rows, int32_t outs,
                      struct carat_error *err)
{
    carat_assert(p->n_buckets < BUCKETS_MAX);
    struct plan *plan = &p->buckets[p->n_buckets++].plan;
    plan_init(plan, rows, outs, from->caches, from->config->n_kv_layer);
    gemma_forward(plan, from->config, from->weights);
    TRY(plan_close(plan, err));
    size_t scratch = from->backend->scratch_bytes(from->device, plan);
    if (plan->bytes > p->bytes) p->bytes = plan->bytes;
    if (scratch > p->scratch_bytes) p->scratch_bytes = scratch;
    return CARAT_OK;
}

int plans_compile(struct plans *p, const struct backend *backend, const struct device *device,
                  const struct gemma_config *c, const struct weights *w,
                  const struct kv_cache *caches, int32_t n_seq, int32_t chunk, int32_t outs,
                  struct carat_error *err)
{
    struct plan_source from = {backend, device, c, w, caches};
    *p = (struct plans){0};
    for (int32_t rows = 1;; rows *= 2) {
        int32_t fitting = rows < n_seq ? rows : n_seq;
        TRY(add_bucket(p, &from, fitting, fitting, err));
        if (rows >= n_seq) break;
    }
    return add_bucket(p, &from, chunk + n_seq, outs > n_seq ? outs : n_seq, err);
}

int plans_bind(struct plans *p, const struct backend *backend, struct device *device,
               void *memory, void *scratch, struct carat_error *err)
{
    for (int32_t i = 0; i < p->n_buckets; i++)
        TRY(backend->bind(device, &p->buckets[i].plan, memory, scratch, &p->buckets[i].program,
                          err));
    return CARAT_OK;
}

void plans_deinit(struct plans *p, const struct backend *backend)
{
    for (int32_t i = 0; i < p->n_buckets; i++) {
        if (p->buckets[i].program) backend->unbind(p->buckets[i].program);
        plan_deinit(&p->buckets[i].plan);
    }
    *p = (struct plans){0};
}

const struct bucket *plans_get(const struct plans *p, int32_t n_token, int32_t n_out)
{
    for (int32_t i = 0; i < p->n_buckets; i++) {
        const int32_t *rows_max = p->buckets[i].plan.rows_max;
        if (n_token <= rows_max[ROWS_TOKEN] && n_out <= rows_max[ROWS_OUT]) return &p->buckets[i];
    }
    carat_assert(!"a step larger than every plan");
    return NULL;
}
