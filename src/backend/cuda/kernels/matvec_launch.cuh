/* How products of a few rows with tiles are dealt to warps and blocks, and which kernel takes
 * them. */
#ifndef CUDA_MATVEC_LAUNCH_CUH
#define CUDA_MATVEC_LAUNCH_CUH

#include "backend/cuda/kernels/matvec_ring.cuh"
#include "backend/cuda/kernels/matvec_stream.cuh"
#include "base/bytes.h"

/* Slices decide bits, so they depend on shapes and the chip alone: enough to give every
 * multiprocessor 12 warps, but of at least two tiles. */
static inline int slices_for(int n_sm, int columns, int n_ktiles, int most)
{
    int n = 1;
    while (n < most && columns * n < 12 * n_sm && n_ktiles >= 4 * n) n *= 2;
    return n;
}

/* Bytes of a stage for one slice, without a low plane. */
static inline int slice_bytes_of(int rows, int stage_ktiles)
{
    return rows * (value_step(stage_ktiles) + scale_step(stage_ktiles));
}

/* A slice in shared memory: values, scales, low plane. */
static inline void shape_slice(matvec_product *p, int rows, bool is_fine)
{
    p->slice_bytes = slice_bytes_of(rows, p->stage_ktiles);
    p->to_low = low_step(rows, p->stage_ktiles);
    if (is_fine) p->slice_bytes = p->to_low + rows * value_step(p->stage_ktiles);
}

/* Fills in how slices and units of `p` are dealt to warps and blocks, with at most `most` slices
 * abreast; more slices take several turns. */
static inline void spread(matvec_product *p, int n_sm, int most)
{
    bool has_two = p->gelu.kind == MATVEC_GELU_MUL, has_gelu = p->gelu.kind != MATVEC_STORE;
    int columns = 0, per_column = has_two ? 1 : WARP_GROUPS; /* groups of eight outputs */
    for (int k = 0; k < (has_two ? 1 : p->n_w); k++) {
        bool is_padded = has_gelu && is_in_blocks(p->gelu.act);
        int groups = is_padded ? round_up(p->w[k].rows, 64) / 8 : p->w[k].n_groups;
        p->columns[k] = (groups + per_column - 1) / per_column;
        columns += p->columns[k];
    }
    int least = has_gelu ? 4 / per_column : 1; /* an epilogue with GELU wants 32 columns */
    int all = (columns + p->columns_apart) * (p->ids ? p->n_used : 1);
    int n = slices_for(n_sm, all, p->w[0].n_ktiles, MATVEC_WARPS / least);
    for (p->slice_shift = 0; 1 << p->slice_shift < n; p->slice_shift++) continue;
    p->abreast = n < most ? n : most;
    p->across = MATVEC_WARPS / p->abreast;
    p->n_units = (columns + p->across - 1) / p->across;
}

/* Tiles of columns in the longest slice. */
static inline int longest_slice(const matvec_product *p)
{
    return ((p->w[0].n_ktiles - 1) >> p->slice_shift) + 1;
}

/* Places what follows the activations (and the ring) in shared memory; returns the total size. */
static inline size_t place(matvec_product *p, size_t bytes)
{
    p->partial_at = (int32_t)bytes;
    bytes += partial_bytes(1 << p->slice_shift, p->across * WARP_GROUPS, 1 << p->row_shift);
    p->list_at = (int32_t)bytes;
    if (p->ids) bytes += (size_t)(p->rows.max * p->n_used) * 2 * sizeof(int);
    return bytes;
}

/* With many units, two resident blocks per SM are fastest (H200: the head of E4B in 164 us, with
 * four blocks 212). */
enum { RESIDENT = 2, RESIDENT_MAX = 3 };

/* As much shared memory as keeps an SM from holding more than n blocks. Otherwise early blocks of
 * the next kernel pile up on the first idle SMs. */
static inline size_t crowd_limit(size_t bytes, int n)
{
    int device = 0, all = 0, most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    /* n + 1 blocks do not fit: each also takes a kilobyte that CUDA reserves */
    size_t wanted = (size_t)(all / (n + 1));
    if (wanted > (size_t)most) wanted = (size_t)most;
    return bytes > wanted ? bytes : wanted;
}

/* Where the answer for r's kernel, bytes and wanted blocks is, or belongs. The first place that is
 * looked at depends on where the program was loaded. Colliding answers lie one after the other;
 * after TRIES places the last one is overwritten. */
static inline struct residence *find_residence(const struct queue *q, const struct residence &r)
{
    enum { TRIES = 32 };
    uint64_t hash =
        (reinterpret_cast<uintptr_t>(r.kernel) + r.asked_bytes * 31 + (size_t)r.wanted) *
        0x9e3779b97f4a7c15ull;
    struct residence *at = nullptr;
    for (int i = 0; i < TRIES; i++) {
        at = &q->residences[((hash >> 32) + i) % RESIDENCES];
        bool is_it =
            at->kernel == r.kernel && at->asked_bytes == r.asked_bytes && at->wanted == r.wanted;
        if (is_it || !at->kernel) break;
    }
    return at;
}

/* How a kernel is launched so that a multiprocessor holds `wanted` blocks, or as many as it can. */
template <typename Kernel>
static struct residence residence_of(const struct queue *q, Kernel *kernel, size_t bytes,
                                     int wanted)
{
    const void *key = reinterpret_cast<const void *>(kernel);
    struct residence r = {key, bytes, wanted, 1, bytes}, *known = nullptr;
    if (q->residences) {
        known = find_residence(q, r);
        if (known->kernel == key && known->asked_bytes == bytes && known->wanted == wanted)
            return *known;
    }
    allow_shared(key, bytes);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&r.blocks, kernel, 32 * MATVEC_WARPS, bytes);
    if (r.blocks > wanted) {
        r.blocks = wanted;
        r.bytes = crowd_limit(bytes, wanted);
    }
    if (known) *known = r;
    return r;
}

/* Experts that the rows may have chosen, an invalid one among them. */
static inline int experts_most(const matvec_product &p)
{
    int pairs = p.rows.max * p.n_used, kinds = p.w[0].n_expert + 1;
    return pairs < kinds ? pairs : kinds;
}

/* Blocks that a multiprocessor should hold at a time. */
static inline int wanted_blocks(const struct queue *q, int units)
{
    int needed = (units + q->n_sm - 1) / q->n_sm;
    return needed > RESIDENT_MAX ? RESIDENT : needed;
}

template <bool IS_EXPERT, typename Kernel>
static void launch_units(const struct queue *q, Kernel *kernel, const matvec_product &p, int tiles,
                         size_t shared_bytes)
{
    dim3 grid;
    if (IS_EXPERT) {
        grid = dim3((unsigned)experts_most(p), (unsigned)p.n_units);
    } else {
        struct residence r =
            residence_of(q, kernel, shared_bytes, wanted_blocks(q, p.n_units * tiles));
        shared_bytes = r.bytes;
        int most = r.blocks * q->n_sm / tiles;
        if (most < 1) most = 1;
        grid = dim3((unsigned)tiles, (unsigned)(p.n_units < most ? p.n_units : most));
    }
    launch(q, kernel, grid, 32 * MATVEC_WARPS, shared_bytes, p);
}

/* Shared memory that a block may take: activations of many columns need it. On Hopper one block an
 * SM of the kernel for up to four rows is as fast as two, and faster than the kernel for eight
 * (H200: 31B's down, three rows, 22.8 us instead of 40.6). */
static inline size_t shared_most(const struct queue *q)
{
    return q->capability == 90 ? SHARED_LARGE : SHARED_MAX;
}

/* The most rows of kernels with a ring; kernels by tiles take more. Chips before Hopper have too
 * little shared memory for activations of more than four. */
enum { FEW = 4, FEW_LARGE = 8 };

static inline int few_rows(const struct queue *q)
{
    return q->capability == 90 ? FEW_LARGE : FEW;
}

/* Deals up to eight rows; returns the bytes of shared memory. */
template <enum form F, enum product_kind KIND, int PLACES = RING, int PARTS = 1>
static size_t deal_few(const struct queue *q, matvec_product *p)
{
    spread(p, q->n_sm, MATVEC_WARPS);
    for (p->row_shift = 0; 1 << p->row_shift < p->rows.max; p->row_shift++) continue;
    p->stage_ktiles = longest_slice(p);
    shape_slice(p, 1 << p->row_shift, KIND == FINE);
    p->ring_at = round_up(p->abreast * p->slice_bytes, 128); /* or copies take a line more */
    return place(p, (size_t)(p->ring_at + MATVEC_WARPS * PLACES * ring_stage<F, PARTS>::BYTES));
}

/* False: activations of this many columns do not fit; launch_tiles takes them. */
template <enum form F, enum product_kind KIND>
static bool launch_few(const struct queue *q, matvec_product p)
{
    size_t bytes = deal_few<F, KIND>(q, &p);
    if (bytes > shared_most(q)) return false;
    launch_units<KIND == EXPERTS>(q, matvec_few<F, KIND>, p, 1, bytes);
    return true;
}

/* Deals tiles of 8 * ROW_TILES rows, with at most `most` slices abreast; returns the bytes of
 * shared memory. */
template <int ROW_TILES, enum product_kind KIND>
static size_t deal_tiles(const struct queue *q, matvec_product *p, int most)
{
    int rows = 8 * ROW_TILES;
    spread(p, q->n_sm, most);
    for (p->row_shift = 0; 1 << p->row_shift < rows; p->row_shift++) continue;
    int length = longest_slice(p);
    p->stage_ktiles = length;
    shape_slice(p, rows, KIND == FINE);
    p->is_filled_once = ROW_TILES == 1 && !p->ids && p->abreast * p->slice_bytes <= STAGE_MAX;
    if (!p->is_filled_once) {
        p->stage_ktiles = STAGE_KTILES;
        shape_slice(p, rows, KIND == FINE);
    }
    p->n_chunks = (length + p->stage_ktiles - 1) / p->stage_ktiles;
    p->stage_bytes = p->abreast * p->slice_bytes;
    return place(p, (size_t)(p->stage_bytes * (p->is_filled_once ? 1 : 2)));
}

/* Whether units are halved, so that more SMs take part: all slices abreast. Activations are read
 * twice as often, so only if all halves run at the same time, two blocks an SM (H200, down of 16
 * rows: E4B 19.5 us instead of 21.8, 12B 24.3 instead of 28.9; 31B, 336 halves, 62 instead of
 * 47). */
static inline bool is_half_better(const struct queue *q, const matvec_product &whole,
                                  const matvec_product &half, int tiles, size_t half_bytes)
{
    return half.abreast == 2 * whole.abreast && half.n_units * tiles <= 2 * q->n_sm &&
           half_bytes <= shared_most(q) / 2;
}

template <enum form F, int ROW_TILES, enum product_kind KIND>
static void launch_tiles(const struct queue *q, matvec_product p)
{
    int tiles = round_up(p.rows.max, 8 * ROW_TILES) / (8 * ROW_TILES);
    matvec_product half = p;
    size_t half_bytes = deal_tiles<ROW_TILES, KIND>(q, &half, MATVEC_WARPS), bytes = 0;
    bool is_half = ROW_TILES == 1;
    if (!is_half) {
        bytes = deal_tiles<ROW_TILES, KIND>(q, &p, MATVEC_WARPS / 2);
        is_half = is_half_better(q, p, half, tiles, half_bytes);
    }
    if (is_half) p = half, bytes = half_bytes;
    launch_units<KIND == EXPERTS>(q, matvec_tiles<F, ROW_TILES, KIND>, p, tiles, bytes);
}

/* ---- Products of arguments ------------------------------------------------------------------- */

/* With all weights; where these go in several launches the caller takes them apart. */
static inline matvec_product product_of(const struct matvec_args *args)
{
    matvec_product p = {};
    p.step = args->step, p.rows = args->rows, p.x = args->x, p.n_used = 1, p.cap = args->cap;
    p.gelu = {args->epilogue,  args->by,  args->by_cols, args->second_col,
              args->w[0].rows, args->out, args->act};
    p.n_w = args->n_w;
    for (int k = 0; k < p.n_w; k++) p.w[k] = args->w[k], p.y[k] = args->y[k];
    return p;
}

static inline matvec_product product_of(const struct expert_args *args)
{
    matvec_product p = {};
    p.step = args->step, p.rows = args->rows, p.x = args->x;
    p.ids = args->ids, p.n_used = args->n_used;
    p.gelu.kind = args->is_gelu_mul ? MATVEC_GELU_MUL : MATVEC_STORE;
    p.gelu.cols = args->w[0].rows, p.gelu.out = args->out, p.gelu.act = args->act;
    p.n_w = args->n_w;
    for (int k = 0; k < p.n_w; k++) p.w[k] = args->w[k], p.y[k] = args->y[k];
    return p;
}

/* Whether n weights lie in tiles of one form, that of `first`. */
static inline bool are_of_form(const struct cuda_weight *w, int n, const struct cuda_weight &first)
{
    for (int k = 0; k < n; k++)
        if (w[k].layout != LAYOUT_TILES || form_of(w[k].format) != form_of(first.format))
            return false;
    return true;
}

/* How many weights from the first on lie in tiles of its form. */
static inline int count_of_form(const struct cuda_weight *w, int n)
{
    int k = 1;
    while (k < n && are_of_form(w, k + 1, w[0])) k++;
    return k;
}

/* Columns of warps that n weights take, each for itself. */
static inline int columns_of(const struct cuda_weight *w, int n)
{
    int sum = 0;
    for (int k = 0; k < n; k++) sum += (w[k].n_groups + WARP_GROUPS - 1) / WARP_GROUPS;
    return sum;
}

/* The n weights from `first` on, which are of one form; the others are multiplied elsewhere. */
static inline matvec_product part_of(const struct matvec_args *args, int first, int n)
{
    matvec_product p = product_of(args);
    p.n_w = n;
    p.columns_apart = columns_of(args->w, args->n_w) - columns_of(args->w + first, n);
    for (int k = 0; k < n; k++) p.w[k] = args->w[first + k], p.y[k] = args->y[first + k];
    return p;
}

/* ---- Dispatch -------------------------------------------------------------------------------- */

static inline int outputs_of(const matvec_product &p)
{
    int sum = 0;
    for (int k = 0; k < p.n_w; k++) sum += p.w[k].rows;
    return sum;
}

/* More than 16 rows are cut into tiles of 16, which share the weights in L2: tiles of 32 took 1.2
 * times as long (E4B Q8_0, 32 rows, H200). Tiles of 8 where there are so few outputs that most SMs
 * would be idle. */
template <enum form F, enum product_kind KIND>
static void launch_form(const struct queue *q, const matvec_product &p)
{
    if (p.rows.max <= FEW && launch_few<F, KIND>(q, p)) return;
    if (p.rows.max <= 8 || outputs_of(p) <= 8 * q->n_sm)
        launch_tiles<F, 1, KIND>(q, p);
    else
        launch_tiles<F, 2, KIND>(q, p);
}

template <enum product_kind KIND>
static void launch_product(const struct queue *q, const matvec_product &p)
{
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: launch_form<F, KIND>(q, p); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

/* sm90/matvec_halves.cu: what launch_product<PLAIN> does, with stages of half as many tiles, if
 * only so all units are resident at once. False: nothing was launched. */
bool launch_halves(const struct queue *q, const matvec_product &p);

/* sm90/matvec_eight.cu: five to eight rows with a ring, if their activations fit. False: nothing
 * was launched. */
bool launch_eight(const struct queue *q, const matvec_product &p);

/* sm90/matvec_mixed.cu: up to eight rows with weights of two forms. False: nothing was launched. */
bool launch_mixed(const struct queue *q, const struct matvec_args *args);

/* matvec_fine.cu, which is compiled apart from matvec.cu. */
void launch_fine(const struct queue *q, const matvec_product &p);

#endif
