/* Reference kernels that work on rows alone: norms, activations, embedding, gathering. */
#include <math.h>
#include <string.h>

#include "backend/ref/ops.h"

/* The token row of row r of this op: r itself, or the token that output row r stands for. */
static int32_t token_row(const struct ref_call *c, int32_t r)
{
    return c->rows_class == ROWS_TOKEN ? r : c->step->out_row[r];
}

/* Decodes the whole blocks that cover the wanted columns, then copies them out scaled. */
void ref_EMBED(const struct ref_call *c)
{
    const struct weight *table = c->op->p.embed.table;
    const struct format_traits *traits = format_traits(table->format);
    int32_t block = traits->block_elements;
    int32_t skipped = c->op->p.embed.first_col % block, first = c->op->p.embed.first_col - skipped;
    int32_t covered = (skipped + c->y_cols + block - 1) / block * block;
    for (int32_t r = 0; r < c->rows; r++) {
        int32_t id = c->step->id[token_row(c, r)];
        const char *row = (const char *)table->device_data + (size_t)id * table->row_bytes;
        traits->decode(row + format_row_bytes(table->format, first), c->scratch, covered);
        float *y = c->y0 + (size_t)r * (size_t)c->y_cols;
        for (int32_t j = 0; j < c->y_cols; j++)
            y[j] = c->op->p.embed.scale * c->scratch[skipped + j];
    }
}

void ref_RMSNORM(const struct ref_call *c)
{
    int32_t group = c->op->p.norm.group;
    const float *w = c->op->p.norm.w ? c->op->p.norm.w->device_data : NULL;
    int64_t n_groups = (int64_t)c->rows * c->y_cols / group;
    for (int64_t g = 0; g < n_groups; g++) {
        const float *x = c->x0 + g * group;
        float *y = c->y0 + g * group;
        double sum = 0;
        for (int32_t j = 0; j < group; j++) sum += (double)x[j] * (double)x[j];
        float scale = (float)(1.0 / sqrt(sum / group + (double)c->op->p.norm.eps));
        for (int32_t j = 0; j < group; j++) y[j] = x[j] * scale * (w ? w[j] : 1.0f);
    }
}

/* Angles are position * inv_freq, rounded to fp32 as in training. Sine and cosine of that angle are
 * exact to fp32. */
void ref_ROPE(const struct ref_call *c)
{
    int32_t d = c->op->p.rope.head_dim, half = d / 2;
    const float *inv_freq = c->op->p.rope.inv_freq->device_data;
    float *cosine = c->scratch, *sine = c->scratch + half;
    for (int32_t r = 0; r < c->rows; r++) {
        float position = (float)(c->step->position[token_row(c, r)] + c->op->p.rope.ahead);
        for (int32_t i = 0; i < half; i++) {
            float angle = position * inv_freq[i];
            cosine[i] = inv_freq[i] > 0 ? (float)cos((double)angle) : 1.0f;
            sine[i] = inv_freq[i] > 0 ? (float)sin((double)angle) : 0.0f;
        }
        const float *x = c->x0 + (size_t)r * (size_t)c->y_cols;
        float *y = c->y0 + (size_t)r * (size_t)c->y_cols;
        for (int32_t head = 0; head < c->y_cols; head += d)
            for (int32_t i = head; i < head + half; i++) {
                float a = x[i], b = x[i + half];
                y[i] = a * cosine[i - head] - b * sine[i - head];
                y[i + half] = b * cosine[i - head] + a * sine[i - head];
            }
    }
}

void ref_ADD(const struct ref_call *c)
{
    int64_t n = (int64_t)c->rows * c->y_cols;
    for (int64_t i = 0; i < n; i++) c->y0[i] = c->x0[i] + c->x1[i];
}

void ref_SCALE(const struct ref_call *c)
{
    int64_t n = (int64_t)c->rows * c->y_cols;
    for (int64_t i = 0; i < n; i++) c->y0[i] = c->op->p.scale.value * c->x0[i];
}

/* gelu(a) = a / 2 (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))), the tanh form. */
static float gelu(float a)
{
    return 0.5f * a * (1.0f + tanhf(0.79788456080286536f * (a + 0.044715f * a * a * a)));
}

void ref_GELU_MUL(const struct ref_call *c)
{
    for (int32_t r = 0; r < c->rows; r++) {
        const float *a = c->x0 + (size_t)r * (size_t)c->y_cols;
        const float *b = c->x1 + (size_t)r * (size_t)c->x1_cols + c->op->p.gelu_mul.second_col;
        float *y = c->y0 + (size_t)r * (size_t)c->y_cols;
        for (int32_t j = 0; j < c->y_cols; j++) y[j] = gelu(a[j]) * b[j];
    }
}

void ref_CONCAT(const struct ref_call *c)
{
    size_t cols = (size_t)c->y_cols, x1_cols = (size_t)c->x1_cols, x0_cols = cols - x1_cols;
    for (size_t r = 0; r < (size_t)c->rows; r++) {
        memcpy(c->y0 + r * cols, c->x0 + r * x0_cols, x0_cols * sizeof(float));
        memcpy(c->y0 + r * cols + x0_cols, c->x1 + r * x1_cols, x1_cols * sizeof(float));
    }
}

void ref_GATHER_ROWS(const struct ref_call *c)
{
    size_t cols = (size_t)c->y_cols;
    for (int32_t r = 0; r < c->rows; r++)
        memcpy(c->y0 + (size_t)r * cols, c->x0 + (size_t)c->step->out_row[r] * cols,
               cols * sizeof(float));
}

void ref_SOFTCAP(const struct ref_call *c)
{
    float cap = c->op->p.softcap.cap;
    int64_t n = (int64_t)c->rows * c->y_cols;
    for (int64_t i = 0; i < n; i++) c->y0[i] = cap * tanhf(c->x0[i] / cap);
}

/* The runner copies rows in and out between runs. */
void ref_INPUT(const struct ref_call *c)
{
    (void)c;
}

void ref_OUTPUT(const struct ref_call *c)
{
    (void)c;
}
