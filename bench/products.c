/* Products of the CPU backend alone, compared with what this machine can do in the same seconds:
 * reading memory, and products of bytes in registers.
 *
 *     products ISA THREADS FORMAT OUTPUTS COLUMNS ROWS ...
 *
 *     products avx2 2 Q4_0 10240 2560 1 2 4     three lines; FORMAT may be "all"
 *
 * Prints medians of ROUNDS rounds, in each of which all take turns: microseconds of a product; GB/s
 * of weights as they lie in memory, of reading, and the share; GOP/s of products, of registers, and
 * the share. The weights together are larger than the processor's caches. */
#include <sys/mman.h>

#include "turns.h"

#include "base/mem.h"
#include "base/rng.h"
#include "plan/emit.h"

enum { ROUNDS = 5, WEIGHTS_MAX = 512, VOCAB = 8, DIFFERENT_ROWS = 48 };
static const size_t weights_least = (size_t)160 << 20;
static const double turn_seconds = 0.05;

struct bench {
    struct turns turns;
    struct plan plan;
    struct weight input, weights[WEIGHTS_MAX];
    enum format format;
    int32_t n_weights, outputs, cols, rows_max;
};

/* A few rows of random values, and the same ones again. Shared memory, since the backend gives the
 * pages of what it has read back, as if they were those of a file. */
static const void *make_matrix(enum format format, int32_t n_rows, int32_t cols)
{
    size_t row_bytes = format_row_bytes(format, cols);
    float *values = mem_alloc((size_t)cols, sizeof *values);
    uint8_t *bytes = mmap(NULL, row_bytes * (size_t)n_rows, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!values || bytes == MAP_FAILED) turns_fail("no memory");
    struct rng rng = {.state = 7};
    for (int32_t r = 0; r < n_rows; r++) {
        uint8_t *row = bytes + (size_t)r * row_bytes;
        for (int32_t i = 0; i < cols && r < DIFFERENT_ROWS; i++)
            values[i] = rng_normal(&rng) * 0.1f;
        if (r < DIFFERENT_ROWS)
            format_traits(format)->encode(values, NULL, row, cols);
        else
            memcpy(row, row - DIFFERENT_ROWS * row_bytes, row_bytes);
    }
    mem_free(values);
    return bytes;
}

static struct weight make_weight(const char *name, enum format format, int32_t rows, int32_t cols,
                                 const void *data)
{
    return (struct weight){.name = name,
                           .format = format,
                           .n_expert = 1,
                           .rows = rows,
                           .cols = cols,
                           .row_bytes = format_row_bytes(format, cols),
                           .expert_bytes = format_row_bytes(format, cols) * (size_t)rows,
                           .data = data};
}

static void make_weights(struct bench *b)
{
    struct carat_error err = {0};
    const void *matrix = make_matrix(b->format, b->outputs, b->cols);
    size_t bytes = format_row_bytes(b->format, b->cols) * (size_t)b->outputs;
    b->n_weights = (int32_t)(weights_least / bytes) + 1;
    if (b->n_weights > WEIGHTS_MAX) b->n_weights = WEIGHTS_MAX;
    b->input =
        make_weight("input", FORMAT_F32, VOCAB, b->cols, make_matrix(FORMAT_F32, VOCAB, b->cols));
    int status = cpu_backend.weight_load(b->turns.device, &b->input, &err);
    for (int32_t i = 0; i < b->n_weights && !status; i++) {
        b->weights[i] = make_weight("weight", b->format, b->outputs, b->cols, matrix);
        status = cpu_backend.weight_load(b->turns.device, &b->weights[i], &err);
    }
    if (status) turns_fail(err.message);
}

static void make_program(struct bench *b)
{
    struct turns *t = &b->turns;
    plan_init(&b->plan, b->rows_max, 1, NULL, 0);
    buf_id x = emit_embed(&b->plan, ROWS_TOKEN, &b->input, 1.0f, 0, b->cols);
    for (int32_t i = 0; i < b->n_weights; i++) emit_matmul(&b->plan, x, &b->weights[i]);
    turns_bind(t, &b->plan);
    int32_t *numbers = mem_alloc(3 * (size_t)b->rows_max + 1, sizeof *numbers);
    if (!numbers) turns_fail("no memory");
    t->step = (struct step){.id = numbers,
                            .position = numbers + b->rows_max,
                            .sequence = numbers + 2 * b->rows_max,
                            .out_row = numbers + 3 * b->rows_max};
    for (int32_t i = 0; i < b->rows_max; i++) t->step.id[i] = i % VOCAB;
}

static void measure(struct bench *b, int32_t rows)
{
    struct turns *t = &b->turns;
    double seconds[3][ROUNDS], registers = 0;
    bool has_codes = b->format != FORMAT_Q8_0 && b->format != FORMAT_IQ4_NL;
    enum turn products = format_is_float(b->format)                        ? TURN_FLOATS
                         : has_codes && t->device->kernels->multiply_codes ? TURN_CODES
                                                                           : TURN_BYTES;
    enum turn turns[3] = {TURN_RUN, TURN_READ, products};
    t->step.n_token = t->step.n_decode = rows;
    for (int i = 0; i < 3; i++) turns_seconds(t, turns[i], 0);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < 3; i++) seconds[i][r] = turns_seconds(t, turns[i], turn_seconds);
    double s = turns_median(seconds[0], ROUNDS) / b->n_weights;
    double read = (double)turns_read_bytes / turns_median(seconds[1], ROUNDS) / 1e9;
    registers = turns_rate(t, turns_median(seconds[2], ROUNDS)) / 1e9;
    double bytes = (double)((struct cpu_weight *)b->weights[0].device_data)->bytes / s / 1e9;
    double operations = (format_is_float(b->format) ? 1.0 : 2.0) * b->outputs * b->cols;
    operations *= rows / s / 1e9;
    printf("%-6s %4d rows %9.1f us  %6.2f of %6.2f GB/s %3.0f %%  %7.1f of %7.1f GOP/s %3.0f %%\n",
           format_traits(b->format)->name, rows, s * 1e6, bytes, read, 100 * bytes / read,
           operations, registers, 100 * operations / registers);
    fflush(stdout);
}

static void measure_format(enum format format, char **argv)
{
    static struct bench b;
    b = (struct bench){.format = format, .outputs = atoi(argv[4]), .cols = atoi(argv[5])};
    for (char **rows = argv + 6; *rows; rows++)
        if (atoi(*rows) > b.rows_max) b.rows_max = atoi(*rows);
    if (b.outputs < 1 || b.cols < 1 || b.cols % 256 || b.rows_max < 1)
        turns_fail("numbers from 1 on expected; COLUMNS a multiple of 256");
    turns_open(&b.turns, argv[1], argv[2]);
    make_weights(&b);
    make_program(&b);
    for (char **rows = argv + 6; *rows; rows++) measure(&b, atoi(*rows));
    turns_close(&b.turns);
}

int main(int argc, char **argv)
{
    if (argc < 7) turns_fail("ISA THREADS FORMAT OUTPUTS COLUMNS ROWS ... expected");
    int n_measured = 0;
    for (enum format f = 0; f < FORMAT_COUNT; f++) {
        if (strcmp(argv[3], "all") != 0 && strcmp(format_traits(f)->name, argv[3]) != 0) continue;
        measure_format(f, argv);
        n_measured++;
    }
    if (n_measured == 0) turns_fail("no such format");
    return 0;
}
