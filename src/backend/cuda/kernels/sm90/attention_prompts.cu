/* Attention of prompts on Hopper: what launch_attention_prefill passes on, in which kernel.
 *
 * The arithmetic is that of attention_prefill.cu, in larger pieces: keys are taken in pages of 64,
 * which begin at multiples of 64 whatever rows there are; q, k, v and shares are rounded to fp16,
 * sums are fp32, and `top` of a row lags behind its largest score. A row's bits depend on its
 * position and its keys alone: pages that it does not see add zeros. */
#include "backend/cuda/kernels/sm90/attention_narrow.cuh"
#include "backend/cuda/kernels/sm90/attention_wide.cuh"

bool launch_attention_prompts(const struct queue *q, const struct attention_args *args,
                              int32_t n_runs)
{
    const struct kv_cache *cache = &args->cache;
    bool is_wide = cache->head_dim == wide::HEAD;
    bool is_page = (int)KV_PAGE == (int)PAGE; /* a page is a tile of keys */
    if (q->capability != 90 || !is_page || cache->format != FORMAT_F16 ||
        (is_wide ? args->window != 0 : cache->head_dim != narrow::HEAD) ||
        (args->act.kind != ACT_HALF && args->act.kind != ACT_NONE))
        return false;
    CUtensorMap k, v;
    if (!boxes_of(&k, *cache, cache->k, PAGE, UNIT_KEYS) ||
        !boxes_of(&v, *cache, cache->v, UNIT_VALUES, 256 / 64))
        return false;
    unsigned n_heads = (unsigned)cache->n_heads, n_sm = (unsigned)q->n_sm;
    unsigned n_tiles = tiles_most(args, n_runs, is_wide ? BLOCK_ROWS : narrow::ROWS);
    if (is_wide)
        launch(q, attend_wide, dim3(n_heads, n_tiles), wide::THREADS, wide::BYTES, *args, k, v);
    else
        launch(q, attend_narrow, dim3(n_heads * n_tiles < n_sm ? n_heads * n_tiles : n_sm),
               narrow::THREADS, sizeof(struct narrow_shared), *args, k, v);
    return true;
}
