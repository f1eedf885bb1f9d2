/* random-model: writes a Gemma 4 file of a true shape with random weights, to measure speed
 * and memory without a download.
 *
 *     random-model e4b q8_0 OUT.gguf [--seed N] [--layers N] [--vocab N] [--keep-shared-kv]
 *     random-model e4b q8_0 OUT.gguf --drafter ...
 *
 * --drafter writes the drafter of the model that the other options give. A model with --simple and
 * a drafter with --agreement PERCENT agree about that many next tokens, with any seeds and TYPEs.
 *
 * Blocks are not encoded from floats: their quants are random bits and their scale fields are
 * set so that the decoded weights have the spread that tests/support/gemma_file.c asks for
 * (0.8 / sqrt(inputs)). In formats whose quants are not symmetric about zero the scale's sign
 * is random, so that weights average zero. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/os.h"
#include "quant/grid_blocks.h"
#include "support/gemma_file.h"

/* ---- Random blocks ---------------------------------------------------------------------- */

enum { LANES = 4, SCALES = 32 };

/* Four xorshift generators next to each other: the loop over lanes becomes vector code. */
struct bits {
    uint64_t lane[LANES];
};

static void bits_seed(struct bits *b, uint64_t seed)
{
    struct rng r = {.state = seed};
    for (int i = 0; i < LANES; i++) b->lane[i] = rng_next(&r) | 1;
}

static void bits_fill(struct bits *b, uint8_t *out, size_t n)
{
    for (size_t at = 0; at < n; at += sizeof b->lane) {
        for (int i = 0; i < LANES; i++) {
            uint64_t x = b->lane[i];
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            b->lane[i] = x;
        }
        size_t left = n - at;
        memcpy(out + at, b->lane, left < sizeof b->lane ? left : sizeof b->lane);
    }
}

/* The scale fields of the blocks of a tensor are chosen from these. */
struct filler {
    struct gemma_tensor tensor;
    uint64_t seed;
    uint16_t scale[SCALES];  /* halves; the last five of a block's bits choose */
    uint16_t offset[SCALES]; /* the offset or minimum of each, as halves */
    uint8_t power[SCALES];   /* MXFP4: exponents instead */
};

/* Root mean square of the quants of a format when their bits are uniform, times that of the group
 * scale that multiplies them, if any. */
static float unit_spread(enum format format)
{
    switch (format) {
    case FORMAT_Q4_0: return sqrtf(255.0f / 12 + 0.25f); /* -8 .. 7 */
    case FORMAT_Q4_1: return sqrtf(255.0f / 12);         /* 0 .. 15 about 7.5 */
    case FORMAT_Q5_0: return sqrtf(1023.0f / 12 + 0.25f);
    case FORMAT_Q5_1: return sqrtf(1023.0f / 12);
    case FORMAT_Q8_0: return sqrtf(65535.0f / 12);
    case FORMAT_IQ4_NL: return 67.5f;
    case FORMAT_IQ4_XS: return 67.5f * sqrtf(4095.0f / 12 + 0.25f); /* scales -32 .. 31 */
    case FORMAT_MXFP4: return sqrtf(274.0f / 8);
    case FORMAT_Q2_K: return sqrtf(15.0f / 12) * 12.0f;
    /* Squares of points, times those of factors: odd numbers up to 31, or 15. */
    case FORMAT_IQ3_XXS: return sqrtf(951.64f * 341) / 4;
    case FORMAT_IQ3_S: return sqrtf(57.67f * 341);
    case FORMAT_IQ2_XXS: return sqrtf(534.43f * 341) / 8;
    case FORMAT_IQ2_XS: return sqrtf(586.48f * 341) / 8;
    case FORMAT_IQ2_S: return sqrtf(596.84f * 341) / 8;
    case FORMAT_IQ1_S:
    case FORMAT_IQ1_M: return sqrtf(0.6098f * 85);
    case FORMAT_Q3_K: return sqrtf((63.0f / 12 + 0.25f) * (4095.0f / 12 + 0.25f));
    case FORMAT_Q4_K: return sqrtf(255.0f / 12) * 48.0f;
    case FORMAT_Q5_K: return sqrtf(1023.0f / 12) * 48.0f;
    case FORMAT_Q6_K: return sqrtf(4095.0f / 12 + 0.25f) * 48.0f;
    case FORMAT_F32:
    case FORMAT_F16:
    case FORMAT_BF16:
    case FORMAT_COUNT: break;
    }
    return 1.0f;
}

/* Distance of the middle of the range of quants from zero, in quants. */
static float middle(enum format format)
{
    switch (format) {
    case FORMAT_Q2_K: return 1.5f;
    case FORMAT_Q4_1:
    case FORMAT_Q4_K: return 7.5f;
    case FORMAT_Q5_1:
    case FORMAT_Q5_K: return 15.5f;
    default: return 0.0f;
    }
}

/* The powers of two below and above a scale, as often each as makes the mean square right. */
static void choose_powers(struct filler *f, float scale)
{
    int above;
    float ratio = 2.0f * frexpf(scale, &above); /* of the scale to the power below: 1 .. 2 */
    float share = (ratio * ratio - 1.0f) / 3.0f;
    for (int i = 0; i < SCALES; i++)
        f->power[i] = (uint8_t)(127 + above + ((float)i + 0.5f < share * SCALES));
}

static void filler_init(struct filler *f, const struct gemma_tensor *t, uint64_t seed)
{
    *f = (struct filler){.tensor = *t, .seed = seed};
    bool is_k = format_traits(t->format)->block_elements == 256;
    bool may_be_negative = middle(t->format) == 0.0f;
    for (int i = 0; i < SCALES; i++) {
        /* Blocks differ by up to a fifth, as real ones do. */
        float scale = t->spread / unit_spread(t->format) * (0.8f + 0.4f * (float)(i / 2) / 15);
        if (may_be_negative && i % 2) scale = -scale;
        f->scale[i] = f32_to_f16(scale);
        float offset = f16_to_f32(f->scale[i]) * middle(t->format);
        f->offset[i] = f32_to_f16(is_k ? offset : -offset);
    }
    choose_powers(f, t->spread / unit_spread(t->format));
}

static void put_half(uint8_t *at, uint16_t half)
{
    memcpy(at, &half, sizeof half);
}

/* Eight scales and eight minima of six bits. Scale and minimum of a pair are alike, so that the
 * minimum cancels the middle of the quants: 32 + n for the first four groups and 48 + n for the
 * others (n of four bits). */
static void put_k_scales(uint8_t *scales)
{
    for (int i = 0; i < 4; i++) {
        int first = 32 | (scales[i] & 15), later = 48 | (scales[i + 4] & 15);
        scales[i] = scales[i + 4] = (uint8_t)(first | later >> 4 << 6);
        scales[i + 8] = (uint8_t)((later & 15) | (later & 15) << 4);
    }
}

/* Sets the scale fields of one block whose bytes are random. */
static void put_scales(const struct filler *f, uint8_t *block)
{
    int pick = block[0] % SCALES;
    switch (f->tensor.format) {
    case FORMAT_Q4_1:
    case FORMAT_Q5_1: put_half(block + 2, f->offset[pick]); break;
    case FORMAT_Q4_K:
    case FORMAT_Q5_K:
        put_half(block + 2, f->offset[pick]);
        put_k_scales(block + 4);
        break;
    case FORMAT_Q6_K: /* scales 40 .. 55 with any sign; d comes last */
        for (int i = 192; i < 208; i++) {
            int scale = 40 + (block[i] & 15);
            block[i] = (uint8_t)(block[i] & 16 ? -scale : scale);
        }
        put_half(block + 208, f->scale[pick]);
        return;
    case FORMAT_Q2_K: /* scales 8 .. 15, and the same minima */
        for (int i = 0; i < 16; i++) block[i] = (uint8_t)((8 | (block[i] & 7)) * 17);
        put_half(block + 80, f->scale[pick]);
        put_half(block + 82, f->offset[pick]);
        return;
    case FORMAT_Q3_K: put_half(block + 108, f->scale[pick]); return;
    case FORMAT_MXFP4: block[0] = f->power[pick]; return;
    case FORMAT_IQ1_M: iq1_m_put_half(block, f->scale[pick]); return;
    case FORMAT_Q8_0: /* -128 does not occur in real files */
        for (int i = 2; i < 34; i++) block[i] = (uint8_t)(block[i] + (block[i] == 0x80));
        break;
    default: break;
    }
    put_half(block, f->scale[pick]);
}

/* Floats of two random bytes each, uniform within the spread. */
static void put_floats(const struct filler *f, struct bits *b, uint8_t *out, size_t n)
{
    enum { STEP = 1024 };
    const struct format_traits *traits = format_traits(f->tensor.format);
    float unit = f->tensor.spread * sqrtf(3.0f) / 32768.0f, values[STEP];
    int16_t random[STEP];
    for (size_t left = n / (size_t)traits->block_bytes; left > 0;) {
        size_t count = left < STEP ? left : STEP;
        bits_fill(b, (uint8_t *)random, sizeof random);
        for (size_t i = 0; i < count; i++) values[i] = unit * (float)random[i];
        traits->encode(values, NULL, out, (int64_t)count);
        out += count * (size_t)traits->block_bytes;
        left -= count;
    }
}

static void fill(void *user, uint64_t offset, void *out, size_t n)
{
    const struct filler *f = user;
    const struct format_traits *traits = format_traits(f->tensor.format);
    struct bits b;
    bits_seed(&b, f->seed ^ offset * UINT64_C(0x9e3779b97f4a7c15));
    if (traits->block_elements == 1) {
        put_floats(f, &b, out, n);
        return;
    }
    bits_fill(&b, out, n);
    size_t block_bytes = (size_t)traits->block_bytes;
    for (uint8_t *block = out, *end = block + n; block < end; block += block_bytes)
        put_scales(f, block);
}

/* Blocks that depend on their row and column alone, or zero ones. */
static void fill_common(void *user, uint64_t offset, void *out, size_t n)
{
    const struct filler *f = user;
    const struct gemma_tensor *t = &f->tensor;
    const struct format_traits *traits = format_traits(t->format);
    size_t block_bytes = (size_t)traits->block_bytes;
    int64_t at = (int64_t)(offset / block_bytes), n_row = t->dims[0] / traits->block_elements,
            n_drawn = t->n_drawn / traits->block_elements;
    memset(out, 0, n);
    for (uint8_t *block = out, *end = block + n; block < end; block += block_bytes, at++) {
        int64_t row = at / n_row, column = at % n_row;
        struct bits b;
        if (column >= n_drawn || !gemma_row_is_drawn(t, row)) continue;
        bits_seed(&b, (uint64_t)(row * n_drawn + column));
        bits_fill(&b, block, block_bytes);
        put_scales(f, block);
    }
}

/* ---- The file --------------------------------------------------------------------------- */

struct job {
    struct gguf_writer writer;
    struct arena arena;
    struct rng rng;
    uint64_t bytes;
};

/* Vectors, small matrices and the identity are drawn; everything else is filled while saving. */
static void add_tensor(void *user, const struct gemma_tensor *t)
{
    struct job *job = user;
    int64_t n = t->dims[0] * t->dims[1] * t->dims[2];
    if ((t->format == FORMAT_F32 && n <= 1 << 20) || t->draw == DRAW_IDENTITY) {
        float *values = mem_alloc((size_t)n, sizeof *values);
        if (!values) {
            job->writer.failed = true;
            return;
        }
        gemma_draw_values(&job->rng, t, values, n);
        gguf_add_values(&job->writer, t->name, t->format, t->dims, t->n_dims, values);
        mem_free(values);
        return;
    }
    struct filler *filler = arena_take(&job->arena, 1, sizeof *filler);
    if (!filler) {
        job->writer.failed = true;
        return;
    }
    filler_init(filler, t, rng_next(&job->rng));
    gguf_add_fill(&job->writer, t->name, t->format, t->dims, t->n_dims,
                  t->draw == DRAW_COMMON ? fill_common : fill, filler);
    job->bytes += format_row_bytes(t->format, t->dims[0]) * (uint64_t)(n / t->dims[0]);
}

/* Fewer layers of the same pattern. About the same part of them owns K/V, and that part ends
 * with a global layer. */
static void cut_layers(struct gemma_shape *s, int n_layer)
{
    int n_own = (s->n_layer - s->n_shared) * n_layer / s->n_layer / s->period * s->period;
    if (n_own < s->period) n_own = s->period;
    s->n_shared = s->n_shared && n_own < n_layer ? n_layer - n_own : 0;
    s->n_layer = n_layer;
}

static int write_file(const struct gemma_shape *shape, const struct gemma_layout *layout,
                      uint64_t seed, const char *path)
{
    struct job job = {.rng = {.state = seed}};
    struct carat_error err = {0};
    double start = os_seconds();
    gemma_put_keys(&job.writer, shape);
    gemma_put_vocabulary(&job.writer, shape->n_vocab);
    gemma_tensors(shape, layout, add_tensor, &job);
    int status = gguf_save(&job.writer, path, &err);
    double seconds = os_seconds() - start, gigabytes = (double)job.bytes / 1e9;
    size_t n_tensor = job.writer.n_tensor;
    gguf_writer_deinit(&job.writer);
    arena_deinit(&job.arena);
    if (status != CARAT_OK) {
        fprintf(stderr, "random-model: %s\n", err.message);
        return carat_exit_status((enum carat_status)status);
    }
    printf("%s: %zu tensors, %.2f GB in %.1f s (%.2f s/GB)\n", path, n_tensor, gigabytes, seconds,
           gigabytes > 0 ? seconds / gigabytes : 0.0);
    return 0;
}

static int usage(const char *problem, const char *what)
{
    fprintf(stderr,
            "random-model: %s%s\n"
            "usage: random-model SIZE TYPE OUT.gguf [--seed N] [--layers N] [--vocab N]\n"
            "                    [--keep-shared-kv] [--separate-experts] [--simple]\n"
            "                    [--drafter [--agreement PERCENT]]\n"
            "SIZE: e2b e4b 12b 26b-a4b 31b. TYPE:",
            problem, what);
    for (int i = 0; i < FORMAT_COUNT; i++)
        fprintf(stderr, " %s", format_traits((enum format)i)->name);
    fprintf(stderr, "\n");
    return 2;
}

/* The number after an option, or false. */
static bool number(const char *text, long long low, long long high, long long *out)
{
    char *end;
    if (!text || !*text) return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0' && *out >= low && *out <= high;
}

int main(int argc, char **argv)
{
    enum gemma_size size;
    enum format format;
    long long seed = 1, value;
    bool is_drafter = false;
    if (argc < 4) return usage("SIZE, TYPE or OUT.gguf is missing", "");
    if (!gemma_size_from_name(argv[1], &size)) return usage("unknown SIZE ", argv[1]);
    if (!format_from_name(argv[2], &format)) return usage("unknown TYPE ", argv[2]);
    struct gemma_shape shape = gemma_true_shape(size);
    struct gemma_layout layout = gemma_layout_for_format(format);
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "--keep-shared-kv") == 0) {
            layout.keep_shared_kv = true;
        } else if (strcmp(argv[i], "--separate-experts") == 0) {
            layout.separate_experts = true;
        } else if (strcmp(argv[i], "--simple") == 0) {
            layout.is_simple = true;
        } else if (strcmp(argv[i], "--drafter") == 0) {
            is_drafter = true;
        } else if (strcmp(argv[i], "--agreement") == 0) {
            if (!number(argv[++i], 0, 100, &value)) return usage("--agreement: 0 to 100", "");
            layout.is_simple = true;
            layout.agreement = (int)value;
        } else if (strcmp(argv[i], "--seed") == 0) {
            if (!number(argv[++i], 0, INT64_MAX, &seed)) return usage("--seed: a number", "");
        } else if (strcmp(argv[i], "--layers") == 0) {
            if (!number(argv[++i], 1, 256, &value)) return usage("--layers: 1 to 256", "");
            cut_layers(&shape, (int)value);
        } else if (strcmp(argv[i], "--vocab") == 0) {
            if (!number(argv[++i], 640, 262144, &value)) return usage("--vocab: 640 to 262144", "");
            shape.n_vocab = (int)value;
        } else {
            return usage("unknown option ", argv[i]);
        }
    }
    if (is_drafter) shape = gemma_drafter_shape(&shape);
    return write_file(&shape, &layout, (uint64_t)seed, argv[3]);
}
