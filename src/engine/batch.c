#include "engine/batch.h"

#include "base/status.h"

int batch_init(struct step *step, struct arena *arena, int32_t rows_max, struct carat_error *err)
{
    size_t rows = (size_t)rows_max;
    *step = (struct step){
        .id = arena_take(arena, rows, sizeof(int32_t)),
        .position = arena_take(arena, rows, sizeof(int32_t)),
        .sequence = arena_take(arena, rows, sizeof(int32_t)),
        .out_row = arena_take(arena, rows, sizeof(int32_t)),
    };
    if (step->id && step->position && step->sequence && step->out_row) return CARAT_OK;
    return err_no_memory(err, "step", rows * 4 * sizeof(int32_t));
}

void batch_clear(struct step *step)
{
    step->n_token = step->n_decode = step->n_short = step->n_out = step->n_next = 0;
}

int32_t batch_add(struct step *step, int32_t id, int32_t position, int32_t sequence, bool is_out)
{
    int32_t t = step->n_token++;
    step->id[t] = id;
    step->position[t] = position;
    step->sequence[t] = sequence;
    if (!is_out) return -1;
    step->out_row[step->n_out] = t;
    return step->n_out++;
}

static void add_rows(struct step *step, struct sequence *s)
{
    int32_t known = sequence_known(s);
    s->out_row = -1;
    for (int32_t p = s->n_cached; p < s->n_cached + s->n_rows; p++) {
        int32_t row = batch_add(step, s->ids[p], p, s->slot, p >= known - 1);
        if (s->out_row < 0) s->out_row = row;
    }
}

static void add_prompts(struct step *step, struct sequence *const *slots, int32_t n_seq,
                        bool are_short)
{
    for (int32_t i = 0; i < n_seq; i++)
        if (slots[i] && slots[i]->state == SEQUENCE_PREFILL &&
            (sequence_known(slots[i]) < SHORT_PROMPT) == are_short)
            add_rows(step, slots[i]);
}

static void add_hint(struct step *step, struct sequence *const *slots, int32_t n_seq, int32_t chunk)
{
    const struct sequence *only = NULL;
    for (int32_t i = 0; i < n_seq; i++) {
        const struct sequence *s = slots[i];
        if (!s || s->state != SEQUENCE_PREFILL || s->is_paused ||
            s->n_cached + s->n_rows == sequence_known(s))
            continue;
        if (only) return;
        only = s;
    }
    if (!only) return;
    int32_t next = only->n_cached + only->n_rows, left = sequence_known(only) - next;
    int32_t rows = step->n_decode > 0 ? only->n_rows : chunk;
    step->next_id = only->ids + next;
    step->n_next = left < rows ? left : rows;
}

void batch_fill(struct step *step, struct sequence *const *slots, int32_t n_seq, int32_t chunk)
{
    batch_clear(step);
    for (int32_t i = 0; i < n_seq; i++)
        if (slots[i] && slots[i]->state == SEQUENCE_DECODE) add_rows(step, slots[i]);
    step->n_decode = step->n_token;
    add_prompts(step, slots, n_seq, true);
    step->n_short = step->n_token;
    add_prompts(step, slots, n_seq, false);
    add_hint(step, slots, n_seq, chunk);
}
