/* The phases of a layer of a decode step, for the models of a step: as a kernel that stays
 * (step.cu), and as launches (launched.cu). */
#ifndef BENCH_HOPPER_PHASES_CUH
#define BENCH_HOPPER_PHASES_CUH

#include <stdint.h>

enum { PHASES_MAX = 16, ROW_MAX = 32 << 10 /* bytes of a phase's input */ };

/* What happens between two waits for all blocks. */
struct phase {
    int64_t weights;    /* bytes of all blocks */
    int32_t cols;       /* bytes of a row of weights */
    int32_t input;      /* bytes that each block reads of what the phase before gave */
    int32_t reductions; /* over the block, before it multiplies */
    int32_t is_alone;   /* one block does it */
};

/* q8_0 takes 34 bytes for 32 values, q4_0 18. */
struct shape {
    const char *name;
    int layers, width, hidden, q, kv, out, ple;
    double byte;
    int64_t head;
    int window_bytes;
};

static inline phase product(const shape &s, int64_t rows, int cols, int input, int reductions)
{
    int bytes = (int)(cols * s.byte) / 512 * 512;
    if (bytes < 512) bytes = 512;
    rows = (int64_t)((double)rows * cols * s.byte / bytes); /* as many bytes as there are */
    return {rows * bytes, bytes, input, reductions, 0};
}

/* The phases of a layer, and the head; returns how many. is_folded: norms are made by every block
 * that reads them, and attention is one phase. */
static inline int layer_of(const shape &s, bool is_folded, phase *all, phase *head)
{
    phase *f = all;
    int w = s.width * 4, code = s.width, normed = is_folded ? 2 * w : code;
    int r = is_folded ? 2 : 0;
    phase norm = {0, 0, 2 * w, 2, 1}, window = {s.window_bytes, 512, s.q * 4, 2, 0};
    *f++ = product(s, s.q + 2 * s.kv, s.width, normed, r);
    if (!is_folded) *f++ = {0, 0, s.q * 4, 1, 0};
    *f++ = window;
    if (!is_folded) *f++ = {0, 0, s.q * 4, 1, 0};
    *f++ = product(s, s.width, s.q, s.q, 0);
    if (!is_folded) *f++ = norm;
    *f++ = product(s, 2 * s.hidden, s.width, normed, r);
    *f++ = product(s, s.width, s.hidden, s.hidden, 0);
    if (!is_folded) *f++ = norm;
    if (s.ple) {
        *f++ = product(s, s.ple, s.width, normed, r);
        *f++ = product(s, s.width, s.ple, s.ple * 4, 0);
        if (!is_folded) *f++ = norm;
    }
    *head = product(s, s.head, s.width, normed, r);
    for (int i = 0; i < f - all; i++)
        if (all[i].input > ROW_MAX) all[i].input = ROW_MAX;
    if (head->input > ROW_MAX) head->input = ROW_MAX;
    return (int)(f - all);
}

static const shape decode_shapes[] = {
    {"E4B Q8_0", 42, 2560, 10240, 2048, 384, 2048, 256, 34.0 / 32, 262144, 1 << 20},
    {"12B Q4_0", 48, 3840, 15360, 4096, 2048, 4096, 0, 18.0 / 32, 262144, 1 << 20},
    {"31B Q4_0", 60, 5376, 21504, 8192, 4096, 8192, 0, 18.0 / 32, 262144, 1 << 20},
};

__device__ __forceinline__ float multiply_piece(int4 w, int4 x)
{
    int a = __dp4a(w.x, x.x, __dp4a(w.y, x.y, 0)), b = __dp4a(w.z, x.z, __dp4a(w.w, x.w, 0));
    return (float)a * __int_as_float(0x3f800000 | (w.x & 255)) +
           (float)b * __int_as_float(0x3f800000 | (w.y & 255));
}

/* A barrier of the warps that multiply; another one fetches. */
template <int WARPS> __device__ __forceinline__ void meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"((int)WARPS * 32) : "memory");
}

/* The sum over these warps. `room` has a float for each. */
template <int WARPS> __device__ __forceinline__ float sum_all(float v, float *room)
{
    for (int i = 16; i; i >>= 1) v += __shfl_xor_sync(~0u, v, i);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
    meet<WARPS>();
    v = room[threadIdx.x % WARPS];
    for (int i = WARPS / 2; i; i >>= 1) v += __shfl_xor_sync(~0u, v, i);
    return v;
}

#endif
