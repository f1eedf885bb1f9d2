/* What it costs that weights lie in memory: products with one matrix again and again, which L2
 * holds, against products that take turns with many. Few rows, and many rows in 8 bits and in
 * fp16. */
#include "hopper/weights.h"

#include <stdio.h>

#include "backend/cuda/cublas.h"
#include "cuda/check_tiles.h"

enum { COPIES = 32, LAUNCHES = 32, ROWS_MAX = 2048 };
#define TURNS_BYTES 300e6 /* of all copies: far more than L2 holds */

enum way { WAY_FEW, WAY_INT8, WAY_FP16, WAYS };
static const char *const way_names[WAYS] = {"few rows", "int8", "fp16"};

struct shape {
    const char *name;
    enum format format;
    int32_t rows, cols; /* of each matrix */
    bool is_pair;       /* gate and up with gelu */
};

struct products {
    struct check *check;
    struct cublas *cublas; /* NULL: launch_gemm_f16 */
    enum way way;
    int32_t n_copies;
    struct matvec_args few[COPIES];
    struct gemm_args many[COPIES];
};

static void record(void *user, int i)
{
    struct products *p = user;
    int at = i % p->n_copies;
    if (p->way == WAY_FEW)
        launch_matvec(&p->check->queue, &p->few[at]);
    else if (p->way == WAY_INT8)
        launch_gemm_i8(&p->check->queue, &p->many[at]);
    else if (p->cublas)
        cublas_multiply(p->cublas, &p->check->queue, &p->many[at]);
    else
        launch_gemm_f16(&p->check->queue, &p->many[at]);
}

/* fp16 values of both signs from 1 to 2. */
static void *halves(size_t n)
{
    struct rng rng = {7};
    uint16_t *host = malloc(n * sizeof *host);
    for (size_t i = 0; i < n; i++) host[i] = (uint16_t)(0x3c00 | (rng_next(&rng) & 0x83ff));
    void *device = check_alloc(host, n * sizeof *host);
    free(host);
    return device;
}

static struct act make_act(enum way way, int32_t rows, int32_t cols)
{
    struct rng rng = {3};
    size_t n = (size_t)rows * (size_t)cols;
    if (way == WAY_FP16) {
        struct act act = {.kind = ACT_HALF, .stride = cols, .values = halves(n)};
        float *ones = malloc((size_t)rows * sizeof *ones);
        for (int32_t i = 0; i < rows; i++) ones[i] = 1;
        act.scale = check_alloc(ones, (size_t)rows * sizeof *ones);
        free(ones);
        return act;
    }
    float *x = malloc(n * sizeof *x);
    check_normal(&rng, x, n, 1);
    struct act act = act_of_kind(x, rows, cols, ACT_INT8);
    free(x);
    return act;
}

/* Weights of one copy; returns the bytes that a product reads of them. */
static size_t make_copy(struct products *p, const struct shape *s, int32_t i)
{
    size_t bytes = 0, part;
    int32_t n_w = p->few[i].n_w = p->many[i].n_w = s->is_pair ? 2 : 1;
    for (int32_t k = 0; k < n_w; k++) {
        struct cuda_weight w = weight_of_noise(s->format, 1, s->rows, s->cols, &part);
        if (p->way == WAY_FP16) {
            part = (size_t)s->rows * (size_t)s->cols * 2;
            w.mirror = check_alloc(NULL, part);
            w.mirror_cols = s->cols;
            launch_mirror(&p->check->queue, &w, 0, 0, s->rows);
        }
        p->few[i].w[k] = p->many[i].w[k] = w;
        bytes += part;
    }
    return bytes;
}

static size_t make_copies(struct products *p, const struct shape *s)
{
    size_t bytes = make_copy(p, s, 0);
    double wanted = TURNS_BYTES / (double)bytes + 1;
    p->n_copies = wanted < 2 ? 2 : wanted > COPIES ? COPIES : (int32_t)wanted;
    for (int32_t i = 1; i < p->n_copies; i++) make_copy(p, s, i);
    return bytes;
}

static void time_rows(struct products *p, const struct shape *s, int32_t rows, size_t bytes,
                      const struct act *x, FILE *csv)
{
    size_t n_y = (size_t)rows * (size_t)s->rows * sizeof(float);
    float *y = check_alloc(NULL, n_y);
    struct step_view step = check_step(rows, rows, 0, NULL, NULL, NULL, NULL);
    struct act out = act_empty(rows, s->rows);
    for (int32_t i = 0; i < p->n_copies; i++) {
        struct matvec_args *few = &p->few[i];
        struct gemm_args *many = &p->many[i];
        few->step = step, few->rows.max = rows, few->x = *x, few->y[0] = y;
        few->epilogue = s->is_pair ? MATVEC_GELU_MUL : MATVEC_STORE;
        if (s->is_pair) few->act = out;
        many->n_rows = rows, many->x = *x, many->half_cols = s->rows;
        many->half = (uint16_t *)(void *)y;
    }
    int32_t n_copies = p->n_copies;
    double cold = graph_time(p->check, record, p, LAUNCHES);
    p->n_copies = 1;
    double hot = graph_time(p->check, record, p, LAUNCHES);
    p->n_copies = n_copies;
    printf("%-22s %-9s %5d %8.1f %9.1f %9.1f %7.1f%% %8.0f %8.1f\n", s->name, way_names[p->way],
           rows, (double)bytes / 1e6, hot * 1e6, cold * 1e6, 100 * (cold - hot) / cold,
           (double)bytes / cold / 1e9,
           2.0 * rows * s->rows * (s->is_pair ? 2 : 1) * s->cols / cold / 1e12);
    if (csv)
        fprintf(csv,
                "weights,%s %s %d rows %.1f MB hot,us,%.6g,,,15\nweights,%s %s %d rows %.1f MB "
                "cold,us,%.6g,,,15\n",
                s->name, way_names[p->way], rows, (double)bytes / 1e6, hot * 1e6, s->name,
                way_names[p->way], rows, (double)bytes / 1e6, cold * 1e6);
    check_step_free(&step);
    act_free(&out);
    check_free(y);
}

static void time_shape(struct check *c, struct cublas *cublas, const struct shape *s, enum way way,
                       const int32_t *rows, size_t n_rows, FILE *csv)
{
    struct products p = {.check = c, .cublas = cublas, .way = way};
    size_t bytes = make_copies(&p, s);
    for (size_t i = 0; i < n_rows; i++) {
        struct act x = make_act(way, rows[i], s->cols);
        time_rows(&p, s, rows[i], bytes, &x, csv);
        act_free(&x);
    }
    for (int32_t i = 0; i < p.n_copies; i++)
        for (int32_t k = 0; k < p.few[i].n_w; k++) check_weight_free(&p.few[i].w[k]);
    fflush(stdout);
}

static const struct shape shapes[] = {
    {"E4B gate and up", FORMAT_Q8_0, 10240, 2560, true},
    {"E4B up", FORMAT_Q8_0, 10240, 2560, false},
    {"E4B down", FORMAT_Q8_0, 2560, 10240, false},
    {"E4B o", FORMAT_Q8_0, 2560, 2048, false},
    {"12B down", FORMAT_Q4_0, 3840, 15360, false},
    {"12B o", FORMAT_Q4_0, 3840, 4096, false},
    {"31B gate and up", FORMAT_Q4_0, 21504, 5376, true},
    {"31B down", FORMAT_Q4_0, 5376, 21504, false},
    {"31B q", FORMAT_Q4_0, 8192, 5376, false},
    {"31B o", FORMAT_Q4_0, 5376, 8192, false},
};

void weights_run(void *stream, int n_sm, bool is_rows, FILE *csv)
{
    static const int32_t few[] = {1, 2, 3, 4, 16}, many[] = {512, ROWS_MAX};
    static const int32_t rows[] = {1, 2, 3, 4, 8, 16, 24, 32, 48, 64};
    struct check c = {
        .queue = {.stream = stream, .n_sm = n_sm, .capability = 90, .has_dependent_launch = true}};
    struct cublas *cublas = NULL;
    void *workspace = check_alloc(NULL, CUBLAS_WORKSPACE_BYTES);
    if (cublas_open(&cublas, NULL) == 0)
        cublas_set_stream(cublas, &c.queue, workspace, CUBLAS_WORKSPACE_BYTES);
    printf("fp16: %s\n%-22s %-9s %5s %8s %9s %9s %8s %8s %8s\n",
           cublas ? "cuBLAS" : "our kernel, no cuBLAS here", "", "way", "rows", "MB", "hot us",
           "cold us", "memory", "GB/s", "TFLOP/s");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (is_rows)
            time_shape(&c, cublas, &shapes[i], WAY_FEW, rows, sizeof rows / sizeof *rows, csv);
        else
            time_shape(&c, cublas, &shapes[i], WAY_FEW, few, sizeof few / sizeof *few, csv);
        if (is_rows || shapes[i].is_pair || shapes[i].cols == 5376) continue;
        for (int way = WAY_INT8; way < WAYS; way++)
            time_shape(&c, cublas, &shapes[i], (enum way)way, many, sizeof many / sizeof *many,
                       csv);
    }
    cublas_close(cublas);
    check_free(workspace);
}
