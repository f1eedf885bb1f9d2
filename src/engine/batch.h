/* Filling in the step: which rows the next forward pass has. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "base/arena.h"
#include "engine/sequence.h"
#include "plan/op.h"

/* Prompts of fewer ids than this are short (op.h). Processors with AMX read longer ones faster in
 * bf16 (docs/benchmarks.md). What may be in the prefix cache does not count: a row's bits would
 * depend on it. */
enum { SHORT_PROMPT = 48 };

/* Arrays for rows_max rows from the arena. CARAT_EMEMORY. */
int batch_init(struct step *step, struct arena *arena, int32_t rows_max, struct carat_error *err);

void batch_clear(struct step *step);

/* Adds a row; `is_out`: its logits are wanted. Returns its place among the output rows, or -1. */
int32_t batch_add(struct step *step, int32_t id, int32_t position, int32_t sequence, bool is_out);

/* Fills in the next step: the newest token of every decoding sequence, then the rows of prompts,
 * short ones first, as many as n_rows of each sequence says. slots[n_seq]: who runs in each slot,
 * or NULL. Sets out_row. The hint (next_id) is given if one prompt alone goes on: `chunk` of its
 * rows or, if somebody decodes, as many as in this step. */
void batch_fill(struct step *step, struct sequence *const *slots, int32_t n_seq, int32_t chunk);

#endif
