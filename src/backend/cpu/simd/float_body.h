/* Products of floats: queries by keys, shares by values, activations by weights that are not
 * quantised. Part of kernels_body.h.
 *
 * A vector of 16 lanes takes REGISTERS registers of LANES lanes, rvec. Loops go over the registers
 * outside and over rows inside, so that as many sums as there are registers run at a time. Every
 * sum has the order of its 16 lanes, whichever rows are treated together. */

/* A lanes file whose vectors take several registers defines these names itself. */
#ifndef REGISTERS
#define REGISTERS 1
typedef fvec rvec;
#define r_set f_set
#define r_load f_load
#define r_store f_store
#define r_mul f_mul
#define r_fma f_fma
#define r_load_f16 f_load_f16
#define r_load_bf16 f_load_bf16
#define r_load_i8 f_load_i8
#define r_set_f16 f_set_f16
#define f_put(x, i, r) (*(x) = (r))
#define f_get(x, i) (*(x))
#endif
enum { LANES = 16 / REGISTERS };

/* How many rows of b (DOTS) or registers of columns (WEIGH) go with 8, 4 or 2 rows of a or y.
 * Decoding blocks costs so much that it pays to do it for 8 rows at a time. */
#define IS_BLOCKS(format) ((format) == FORMAT_Q8_0)
#if REGISTERS == 1
enum { DOTS_BY_8 = 2, DOTS_BY_4 = 4, DOTS_BY_2 = 4, WEIGH_BY_8 = 2, WEIGH_BY_4 = 4 };
#else
enum { DOTS_BY_8 = 1, DOTS_BY_4 = 3, DOTS_BY_2 = 2, WEIGH_BY_8 = 1, WEIGH_BY_4 = 2 };
#endif

/* Values of `a` in a stretch of columns, in all its rows together, and rows of b that go with them.
 * Where a vector is one register, `a` is read once for each block of b, and a stretch is a whole
 * row. One or two rows fit in the first-level cache anyway, and longer reads of b are faster. */
#if REGISTERS == 1
enum { STRETCH_VALUES = 1 << 30, STRETCH_VALUES_FEW = 1 << 30, STRETCH_ROWS = 4 };
#else
enum { STRETCH_VALUES = 4096, STRETCH_VALUES_FEW = 8192, STRETCH_ROWS = 12 };
#endif

/* Values of a format in 64 bytes; less where that is not a whole number of blocks. */
ALWAYS int line_values(const enum format format)
{
    return format == FORMAT_F32 ? 16 : 32;
}

/* Where value k of row j lies. */
ALWAYS const uint8_t *value_at(const enum format format, const struct float_rows *rows, int j,
                               int64_t k)
{
    const uint8_t *row = (const uint8_t *)rows->data + (size_t)j * rows->stride;
    if (format == FORMAT_Q8_0) return row + (size_t)(k / 32 * 34 + 2 + k % 32);
    return row + (size_t)k * (format == FORMAT_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* LANES values of row j, from value k on. */
ALWAYS rvec values_at(const enum format format, const struct float_rows *rows, int j, int64_t k)
{
    const void *p = value_at(format, rows, j, k);
    if (format == FORMAT_F32) return r_load(p);
    if (format == FORMAT_F16) return r_load_f16(p);
    if (format == FORMAT_BF16) return r_load_bf16(p);
    return r_mul(r_load_i8(p), r_set_f16((const uint8_t *)p - k % 32 - 2));
}

/* Prefetches what lies `ahead` of value k of row j; it may be anywhere. */
ALWAYS void ask_for_line(const enum format format, const struct float_rows *rows, int j, int64_t k)
{
    __builtin_prefetch(value_at(format, rows, j, k) + rows->ahead, 0, 2);
}

/* The last n values of a row, fewer than 16, and zeros after them. Rows of Q8_0 never end so. */
ALWAYS fvec last_values(const enum format format, const struct float_rows *rows, int j, int64_t k,
                        int64_t n)
{
    float padded[16] = {0};
    for (int64_t i = 0; i < n; i++) {
        const void *p = value_at(format, rows, j, k + i);
        if (format == FORMAT_F32) memcpy(&padded[i], p, sizeof(float));
        if (format == FORMAT_F16) padded[i] = f16_to_f32(*(const uint16_t *)p);
        if (format == FORMAT_BF16) padded[i] = bf16_to_f32(*(const uint16_t *)p);
    }
    return f_load(padded);
}

/* Adds the products of columns [from, to) to the sums of n_a rows by rows [j, j + n_b) of b, or
 * begins with them. The sum of row i by row j + h is total[h * n_a + i]. */
ALWAYS void dots_columns(const enum format format, const int n_a, const int n_b, const bool asks,
                         const float *a, int64_t a_stride, const struct float_rows *b, int j,
                         int64_t from, int64_t to, fvec *total)
{
    const int line = line_values(format);
    const int step = n_a * n_b * REGISTERS <= 8 ? REGISTERS : 1; /* registers at a time */
    for (int part = 0; part < REGISTERS; part += step) {
        rvec sum[4][8][REGISTERS]; /* of b, of a */
        for (int h = 0; h < n_b; h++)
            for (int i = 0; i < n_a; i++)
                for (int s = 0; s < step; s++)
                    sum[h][i][s] = from ? f_get(&total[h * n_a + i], part + s) : r_set(0);
        for (int64_t k = from + part * LANES; k < to; k += 16) {
            rvec y[4][REGISTERS];
            for (int h = 0; h < n_b; h++) {
                if (asks && part == 0 && k % line == 0) ask_for_line(format, b, j + h, k);
                for (int s = 0; s < step; s++) y[h][s] = values_at(format, b, j + h, k + s * LANES);
            }
            for (int i = 0; i < n_a; i++)
                for (int s = 0; s < step; s++) {
                    rvec x = r_load(a + i * a_stride + k + s * LANES);
                    for (int h = 0; h < n_b; h++) sum[h][i][s] = r_fma(x, y[h][s], sum[h][i][s]);
                }
        }
        for (int h = 0; h < n_b; h++)
            for (int i = 0; i < n_a; i++)
                for (int s = 0; s < step; s++) f_put(&total[h * n_a + i], part + s, sum[h][i][s]);
    }
}

/* Adds the values after the last whole vector, padded with zeros, and then the lanes of each sum of
 * n_a rows by row j of b. */
ALWAYS void dots_finish(const enum format format, const int n_a, const float *a, int64_t a_stride,
                        const struct float_rows *b, int j, int64_t n, fvec *total, float *out,
                        int64_t out_stride)
{
    int64_t whole = n / 16 * 16;
    for (int i = 0; i < n_a && whole < n; i++) {
        struct float_rows x = {.format = FORMAT_F32, .data = a + i * a_stride};
        total[i] = f_fma(last_values(FORMAT_F32, &x, 0, whole, n - whole),
                         last_values(format, b, j, whole, n - whole), total[i]);
    }
    float four[4];
    int i = 0;
    for (; i + 4 <= n_a; i += 4) {
        f_sum4(total + i, four);
        for (int l = 0; l < 4; l++) out[(i + l) * out_stride + j] = four[l];
    }
    for (; i < n_a; i++) out[i * out_stride + j] = f_sum(total[i]);
}

/* n_a rows, a constant, by all of b, n_b at a time. Long rows are cut into stretches of columns, so
 * that those of `a` stay in the first-level cache for several rows of b. */
ALWAYS void dots_rows(const enum format format, const int n_a, const int n_b, const bool asks,
                      const float *a, int64_t a_stride, const struct float_rows *b, int n_rows,
                      int64_t n, float *out, int64_t out_stride)
{
    const int64_t stretch = (n_a <= 2 ? STRETCH_VALUES_FEW : STRETCH_VALUES) / n_a;
    int64_t whole = n / 16 * 16;
    fvec total[STRETCH_ROWS * 8];
    for (int first = 0, end; first < n_rows; first = end) {
        end = n_rows - first < STRETCH_ROWS ? n_rows : first + STRETCH_ROWS;
        int64_t from = 0, to;
        do {
            int j = first;
            to = whole - from < stretch ? whole : from + stretch;
            for (; j + n_b <= end; j += n_b)
                dots_columns(format, n_a, n_b, asks, a, a_stride, b, j, from, to,
                             total + (j - first) * n_a);
            for (; j < end; j++)
                dots_columns(format, n_a, 1, asks, a, a_stride, b, j, from, to,
                             total + (j - first) * n_a);
        } while ((from = to) < whole);
        for (int j = first; j < end; j++)
            dots_finish(format, n_a, a, a_stride, b, j, n, total + (j - first) * n_a, out,
                        out_stride);
    }
}

/* The same with and without prefetching: only the first pass over b asks for what comes later. */
#define DOTS_ROWS(FORMAT, N_A, N_B)                                                                \
    for (; i + (N_A) <= n_a; i += (N_A)) {                                                         \
        if (b->ahead && i == 0)                                                                    \
            dots_rows(FORMAT, N_A, N_B, true, a, a_stride, b, n_b, n, out, out_stride);            \
        else                                                                                       \
            dots_rows(FORMAT, N_A, N_B, false, a + i * a_stride, a_stride, b, n_b, n,              \
                      out + i * out_stride, out_stride);                                           \
    }

/* One function per format: smaller functions compile faster. */
#define DOTS(FORMAT)                                                                               \
    static void dots_##FORMAT(const float *a, int64_t a_stride, int n_a,                           \
                              const struct float_rows *b, int n_b, int64_t n, float *out,          \
                              int64_t out_stride)                                                  \
    {                                                                                              \
        int i = 0;                                                                                 \
        if (IS_BLOCKS(FORMAT_##FORMAT)) DOTS_ROWS(FORMAT_##FORMAT, 8, DOTS_BY_8)                   \
        DOTS_ROWS(FORMAT_##FORMAT, 4, DOTS_BY_4)                                                   \
        DOTS_ROWS(FORMAT_##FORMAT, 2, DOTS_BY_2)                                                   \
        DOTS_ROWS(FORMAT_##FORMAT, 1, 4)                                                           \
    }
DOTS(F32)
DOTS(F16)
DOTS(BF16)
DOTS(Q8_0)

static void dots(const float *a, int64_t a_stride, int n_a, struct float_rows b, int n_b, int64_t n,
                 float *out, int64_t out_stride)
{
    switch (b.format) {
    case FORMAT_F16: dots_F16(a, a_stride, n_a, &b, n_b, n, out, out_stride); break;
    case FORMAT_BF16: dots_BF16(a, a_stride, n_a, &b, n_b, n, out, out_stride); break;
    case FORMAT_Q8_0: dots_Q8_0(a, a_stride, n_a, &b, n_b, n, out, out_stride); break;
    default: dots_F32(a, a_stride, n_a, &b, n_b, n, out, out_stride); break;
    }
}

/* Columns from k on, n_c registers of them, of n_y rows. */
ALWAYS void weigh_columns(const enum format format, const int n_y, const int n_c, const bool asks,
                          float *y, int64_t y_stride, const float *keep, const float *p,
                          int64_t p_stride, const struct float_rows *v, int n_v, int64_t k)
{
    const int line = line_values(format);
    rvec sum[4][8]; /* of columns, of rows */
    for (int i = 0; i < n_y; i++)
        for (int c = 0; c < n_c; c++)
            sum[c][i] = r_mul(r_load(y + i * y_stride + k + c * LANES), r_set(keep[i]));
    for (int j = 0; j < n_v; j++) {
        rvec x[4];
        for (int c = 0; c < n_c; c++) {
            if (asks && (k + c * LANES) % line == 0) ask_for_line(format, v, j, k + c * LANES);
            x[c] = values_at(format, v, j, k + c * LANES);
        }
        for (int i = 0; i < n_y; i++) {
            rvec share = r_set(p[i * p_stride + j]);
            for (int c = 0; c < n_c; c++) sum[c][i] = r_fma(share, x[c], sum[c][i]);
        }
    }
    for (int i = 0; i < n_y; i++)
        for (int c = 0; c < n_c; c++) r_store(y + i * y_stride + k + c * LANES, sum[c][i]);
}

ALWAYS void weigh_rows(const enum format format, const int n_y, const int n_c, const bool asks,
                       float *y, int64_t y_stride, const float *keep, const float *p,
                       int64_t p_stride, const struct float_rows *v, int n_v, int64_t n)
{
    int64_t k = 0, whole = n / 16 * 16;
    for (; k + n_c * LANES <= whole; k += n_c * LANES)
        weigh_columns(format, n_y, n_c, asks, y, y_stride, keep, p, p_stride, v, n_v, k);
    for (; k < whole; k += LANES)
        weigh_columns(format, n_y, 1, asks, y, y_stride, keep, p, p_stride, v, n_v, k);
    for (int i = 0; i < n_y && whole < n; i++) { /* only in small test models */
        float padded[16] = {0}, *row = y + i * y_stride + whole;
        memcpy(padded, row, (size_t)(n - whole) * sizeof *padded);
        fvec sum = f_mul(f_load(padded), f_set(keep[i]));
        for (int j = 0; j < n_v; j++)
            sum =
                f_fma(f_set(p[i * p_stride + j]), last_values(format, v, j, whole, n - whole), sum);
        f_store(padded, sum);
        memcpy(row, padded, (size_t)(n - whole) * sizeof *padded);
    }
}

#define WEIGH_ROWS(FORMAT, N_Y, N_C)                                                               \
    for (; i + (N_Y) <= n_y; i += (N_Y)) {                                                         \
        if (v->ahead && i == 0)                                                                    \
            weigh_rows(FORMAT, N_Y, N_C, true, y, y_stride, keep, p, p_stride, v, n_v, n);         \
        else                                                                                       \
            weigh_rows(FORMAT, N_Y, N_C, false, y + i * y_stride, y_stride, keep + i,              \
                       p + i * p_stride, p_stride, v, n_v, n);                                     \
    }

#define WEIGH(FORMAT)                                                                              \
    static void weigh_##FORMAT(float *y, int64_t y_stride, const float *keep, const float *p,      \
                               int64_t p_stride, int n_y, const struct float_rows *v, int n_v,     \
                               int64_t n)                                                          \
    {                                                                                              \
        int i = 0;                                                                                 \
        if (IS_BLOCKS(FORMAT_##FORMAT)) WEIGH_ROWS(FORMAT_##FORMAT, 8, WEIGH_BY_8)                 \
        WEIGH_ROWS(FORMAT_##FORMAT, 4, WEIGH_BY_4)                                                 \
        WEIGH_ROWS(FORMAT_##FORMAT, 2, 4)                                                          \
        WEIGH_ROWS(FORMAT_##FORMAT, 1, 4)                                                          \
    }
WEIGH(F32)
WEIGH(F16)
WEIGH(BF16)
WEIGH(Q8_0)

static void weigh(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride,
                  int n_y, struct float_rows v, int n_v, int64_t n)
{
    switch (v.format) {
    case FORMAT_F16: weigh_F16(y, y_stride, keep, p, p_stride, n_y, &v, n_v, n); break;
    case FORMAT_BF16: weigh_BF16(y, y_stride, keep, p, p_stride, n_y, &v, n_v, n); break;
    case FORMAT_Q8_0: weigh_Q8_0(y, y_stride, keep, p, p_stride, n_y, &v, n_v, n); break;
    default: weigh_F32(y, y_stride, keep, p, p_stride, n_y, &v, n_v, n); break;
    }
}
