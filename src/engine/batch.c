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
    step->n_token = step->n_decode = step->n_out = step->n_next = 0;
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

/* The next prefill chunk: the next stretch of the oldest prompt that has rows left after those
 * already in the step. NULL: none. */
static struct sequence *next_chunk(struct sequence *sequences, int32_t n_seq, int32_t chunk,
                                   int32_t *first, int32_t *n)
{
    struct sequence *oldest = NULL;
    for (int32_t i = 0; i < n_seq; i++) {
        struct sequence *s = &sequences[i];
        if (s->state != SEQUENCE_PREFILL || s->n_cached + s->n_rows == s->n_prompt) continue;
        if (!oldest || s->request < oldest->request) oldest = s;
    }
    if (!oldest) return NULL;
    *first = oldest->n_cached + oldest->n_rows;
    *n = oldest->n_prompt - *first < chunk ? oldest->n_prompt - *first : chunk;
    return oldest;
}

void batch_next(struct step *step, struct sequence *sequences, int32_t n_seq, int32_t chunk)
{
    batch_clear(step);
    for (int32_t i = 0; i < n_seq; i++) {
        struct sequence *s = &sequences[i];
        s->n_rows = 0;
        s->out_row = -1;
        if (s->state != SEQUENCE_DECODE) continue;
        s->out_row = batch_add(step, s->last_id, s->n_cached, i, true);
        s->n_rows = 1;
    }
    step->n_decode = step->n_token;
    int32_t first, n;
    struct sequence *s = next_chunk(sequences, n_seq, chunk, &first, &n);
    if (!s) return;
    for (int32_t p = first; p < first + n; p++)
        s->out_row = batch_add(step, s->ids[p], p, (int32_t)(s - sequences), p == s->n_prompt - 1);
    s->n_rows = n;
    s = next_chunk(sequences, n_seq, chunk, &first, &n);
    if (!s) return;
    step->next_id = s->ids + first;
    step->n_next = n;
}
