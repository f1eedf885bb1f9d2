#include "backend/cpu/profile.h"

#include "base/allowance.h"

enum { DECODE_ROWS_MAX = 64 }; /* more rows are a prompt's */

static const char *step_kind(const struct cpu_step *s)
{
    if (s->run == cpu_QUANTIZE) return "quantize";
    if (s->run == cpu_TURNS) return "rope tables";
    if (s->run == cpu_OBSERVE) return "rows observed";
    if (s->run == cpu_SORT_ROUTED) return "rows sorted by expert";
    if (s->run == cpu_JOIN_SEGMENTS) return "attention joined";
    if (s->run == cpu_ATTENTION)
        return s->op->p.attention.window ? "attention local" : "attention global";
    return op_name(s->op->code);
}

/* Codes of up to 6 bits in products: those of N4 and M4 stand for levels of more. */
static bool is_short(enum code_kind kind)
{
    return kind != CODE_S8 && kind != CODE_N4 && kind != CODE_M4;
}

/* Some rows of a product in bf16, the others in 8 bits. Weights that are floats have no work in 8
 * bits: their rows that decode are multiplied as they are. */
static void share_with_bf16(const struct cpu_step *s, const struct weight *w,
                            struct time_work *work)
{
    int32_t rows = cpu_step_rows(s);
    double byte_share = (double)cpu_step_byte_rows(s) / rows;
    const struct time_work all = time_work_for_weights(work->kind, 1, &w, rows, false, true);
    work->fp16_operations = all.fp16_operations * (1 - byte_share);
    work->int8_operations *= byte_share;
}

static struct time_work step_work(const struct cpu_step *s)
{
    const struct weight *w = op_product(s->op);
    bool is_product = s->run == cpu_MATMUL || s->run == cpu_EXPERT_IN || s->run == cpu_EXPERT_OUT;
    if (!is_product) return (struct time_work){.kind = step_kind(s)};
    const struct cpu_weight *prepared = w->device_data;
    int32_t per_row = s->run == cpu_MATMUL ? 1 : s->op->p.expert.n_used;
    struct time_work work = time_work_for_weights(step_kind(s), 1, &w, cpu_step_rows(s) * per_row,
                                                  prepared->tiles, false);
    if (op_may_be_bf16(s->program->device, s->op) && weight_takes_bf16(w) && cpu_step_rows(s) > 0)
        share_with_bf16(s, w, &work);
    if (s->program->device->kernels->multiply_codes && is_short(prepared->shape.kind)) {
        work.code_operations = work.int8_operations;
        work.int8_operations = 0;
    }
    return work;
}

void cpu_profile_add(struct time_tables *tables, const struct program *p, double end)
{
    struct time_table *t = p->step->n_token > DECODE_ROWS_MAX ? &tables->prefill : &tables->decode;
    for (int32_t i = 0; i < p->n_steps; i++) {
        struct time_work work = step_work(&p->steps[i]);
        double next = i + 1 < p->n_steps ? p->begun[i + 1] : end;
        time_table_add(t, &work, next - p->begun[i]);
    }
    if (p->n_steps) time_table_end_step(t, end - p->begun[0]);
}

void cpu_profile_print(struct device *device, struct buf *out)
{
    struct device_limits limits;
    if (!device->profile) return;
    cpu_measure_limits(device, allowed_memory(), &limits);
    time_tables_print(device->profile, &limits, out);
}
