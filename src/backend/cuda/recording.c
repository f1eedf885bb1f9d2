#include "backend/cuda/recording.h"

#include "backend/cuda/kernels.h"

/* How many rows fewer than the recorded step a step may have. Replaying saves 0.24 ms (8 rows) to
 * 0.34 ms (512 and more), E4B on an H200. That is worth padding a few rows by half, as they cost
 * little next to their weights, a short prompt by 64 rows, and a long one or decode rows by 32. */
static int32_t row_slack(const struct plan_usual *usual)
{
    int32_t rows = usual->rows[ROWS_TOKEN];
    if (rows <= MATVEC_ROWS_MAX) return rows / 2;
    return rows <= 512 && usual->n_decode == 0 ? 64 : 32;
}

static bool all_decode(const struct step *step)
{
    return step->n_token > MATVEC_ROWS_MAX && step->n_decode == step->n_token &&
           step->n_out == step->n_token;
}

/* Few and many rows use different products, and attention treats decode rows among many
 * differently: a step is never launched as one of another kind. (Where the number of rows decides
 * between 8 bits and fp16, padding may move a step to fp16.) Where prompts are apart, steps with
 * rows of both kinds are launched as they are. */
static bool serves(const struct plan_usual *usual, const struct step *step, bool is_apart)
{
    int32_t rows = usual->rows[ROWS_TOKEN], outs = usual->rows[ROWS_OUT];
    if (is_apart && step->n_decode != (usual->n_decode > 0 ? step->n_token : 0)) return false;
    if (step->n_token > rows || step->n_token + row_slack(usual) < rows) return false;
    if (rows <= MATVEC_ROWS_MAX && outs <= MATVEC_ROWS_MAX) return step->n_out <= outs;
    if (usual->n_decode > 0) return all_decode(step);
    bool is_alike = is_apart || (step->n_token > MATVEC_ROWS_MAX) == (rows > MATVEC_ROWS_MAX);
    return is_alike && step->n_decode == 0 && step->n_out == outs;
}

int recording_for(const struct plan *plan, const struct step *step, bool is_apart)
{
    int best = -1;
    for (int i = 0; i < plan->n_usual; i++) {
        const int32_t *rows = plan->usual[i].rows;
        if (!serves(&plan->usual[i], step, is_apart)) continue;
        const int32_t *least = best < 0 ? NULL : plan->usual[best].rows;
        if (!least || rows[ROWS_TOKEN] < least[ROWS_TOKEN] ||
            (rows[ROWS_TOKEN] == least[ROWS_TOKEN] && rows[ROWS_OUT] < least[ROWS_OUT]))
            best = i;
    }
    return best;
}
