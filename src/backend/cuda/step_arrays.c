#include "backend/cuda/step_arrays.h"

#include <stdbool.h>
#include <string.h>

struct step_arrays step_arrays_at(int32_t *memory, int32_t rows_max)
{
    struct step_arrays a = {.counts = NULL};
    if (!memory) return a;
    a.counts = memory;
    a.id = memory + STEP_COUNTS;
    a.position = a.id + rows_max;
    a.sequence = a.position + rows_max;
    a.out_row = a.sequence + rows_max;
    a.slot = a.out_row + rows_max;
    a.run[ROWS_TOKEN] = a.slot + rows_max;
    a.run[ROWS_OUT] = a.run[ROWS_TOKEN] + rows_max + 1;
    a.pack = (struct pack *)(void *)(a.run[ROWS_OUT] + rows_max + 1);
    a.member = (int32_t *)(void *)(a.pack + rows_max);
    a.is_packed = a.member + rows_max;
    return a;
}

/* Whether token t goes on with the run that the token before it in its class is in. */
static bool goes_on(const struct step *step, int32_t before, int32_t t)
{
    return step->sequence[before] == step->sequence[t] &&
           step->position[before] < step->position[t];
}

/* Of rows [begin, n) of a class: the edges of their runs, falling. Row r is token out_row[r], or
 * token r when out_row is NULL. Returns the number of runs. */
static int32_t find_runs(const struct step *step, const int32_t *out_row, int32_t begin, int32_t n,
                         int32_t *edge)
{
    int32_t runs = 0;
    edge[0] = n;
    for (int32_t r = n - 1; r > begin; r--)
        if (!goes_on(step, out_row ? out_row[r - 1] : r - 1, out_row ? out_row[r] : r))
            edge[++runs] = r;
    if (n > begin) edge[++runs] = begin;
    return runs;
}

struct step_rows step_arrays_fill(const struct step_arrays *to, const struct step *step)
{
    size_t n = (size_t)step->n_token * sizeof(int32_t);
    memcpy(to->id, step->id, n);
    memcpy(to->position, step->position, n);
    memcpy(to->sequence, step->sequence, n);
    memcpy(to->out_row, step->out_row, (size_t)step->n_out * sizeof(int32_t));
    struct step_rows rows = {.n = {step->n_token, step->n_out}};
    rows.n_decode[ROWS_TOKEN] = step->n_decode;
    while (rows.n_decode[ROWS_OUT] < step->n_out &&
           step->out_row[rows.n_decode[ROWS_OUT]] < step->n_decode)
        rows.n_decode[ROWS_OUT]++;
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        rows.n_runs[c] = find_runs(step, c == ROWS_OUT ? step->out_row : NULL, rows.n_decode[c],
                                   rows.n[c], to->run[c]);
    to->counts[0] = step->n_token;
    to->counts[1] = step->n_decode;
    to->counts[2] = step->n_out;
    to->counts[3] = rows.n_runs[ROWS_TOKEN];
    to->counts[4] = rows.n_runs[ROWS_OUT];
    return rows;
}

static void clear(int32_t *row, int32_t begin, int32_t end)
{
    if (begin < end) memset(row + begin, 0, (size_t)(end - begin) * sizeof *row);
}

void step_arrays_pad(const struct step_arrays *to, const struct step_rows *rows, const int32_t *n)
{
    clear(to->id, rows->n[ROWS_TOKEN], n[ROWS_TOKEN]);
    clear(to->position, rows->n[ROWS_TOKEN], n[ROWS_TOKEN]);
    clear(to->sequence, rows->n[ROWS_TOKEN], n[ROWS_TOKEN]);
    clear(to->out_row, rows->n[ROWS_OUT], n[ROWS_OUT]);
}
