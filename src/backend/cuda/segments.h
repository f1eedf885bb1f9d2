/* How attention of rows on their own cuts a row's keys into segments, and rows that share pages
 * into packs: for its kernels and for packs.c. C and CUDA common subset. */
#ifndef CUDA_SEGMENTS_H
#define CUDA_SEGMENTS_H

#include <stdint.h>

#ifdef __CUDACC__
#define SEGMENTS_INLINE static __host__ __device__ __forceinline__
#else
#define SEGMENTS_INLINE static inline
#endif

enum {
    TILE_KEYS = 32,
    HEADS = 8,        /* query heads of a block, or twice as many */
    SPLITS_MIN = 8,   /* segments of a row, for each block's heads */
    SPLITS_MAX = 128, /* with LONG times as many for a long context */
    LONG = 2,         /* pays from LONG_TILES tiles per segment on */
    LONG_TILES = 8,
    BLOCKS_WANTED = 128, /* of one row: about one for each multiprocessor, two of short heads */
    CASCADE_SLOTS = 4,   /* a block that takes a pack has this many times HEADS query heads */
    CASCADE_DIM = 512    /* head size of layers that can have packs */
};

/* Blocks of `heads` query heads each that share a key head. */
SEGMENTS_INLINE int32_t chunks_of(int32_t group, int32_t heads)
{
    return (group + heads - 1) / heads;
}

/* Segments of a row whose keys take all of them. */
SEGMENTS_INLINE int32_t splits_of(int32_t n_heads, int32_t head_dim, int32_t n_kv_heads,
                                  int32_t heads)
{
    int32_t blocks = head_dim > 256 ? BLOCKS_WANTED : 2 * BLOCKS_WANTED;
    int32_t splits = blocks / (n_kv_heads * chunks_of(n_heads / n_kv_heads, heads));
    return splits < SPLITS_MIN ? SPLITS_MIN : splits > SPLITS_MAX ? SPLITS_MAX : splits;
}

/* Segments of a row whose keys lie in this many tiles. A segment has two tiles at least: what it
 * leaves is as many bytes as one tile of eight heads. One tile is 1.3 % of a step faster for one
 * row of E4B and 0.8 to 3 % slower for 32 rows of E4B or 12B (H200). */
SEGMENTS_INLINE int32_t segments_of(int32_t n_tiles, int32_t splits)
{
    int32_t n_pairs = (n_tiles + 1) / 2;
    int32_t most = n_tiles >= LONG_TILES * splits ? LONG * splits : splits;
    return n_pairs < most ? n_pairs : most;
}

/* Rows of a slot of a pack; group: query heads of a key head. */
SEGMENTS_INLINE int32_t slot_rows_of(int32_t group)
{
    return group < HEADS ? HEADS / group : 1;
}

#endif
