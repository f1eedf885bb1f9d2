/* Filling in the step: which rows the next forward pass has. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "base/arena.h"
#include "engine/sequence.h"
#include "plan/op.h"

/* Prompts of fewer ids than this are short (op.h). Processors with AMX read longer ones faster in
 * bf16 (docs/benchmarks.md). Ids that the prefix cache may hold count too: otherwise a row's bits
 * would depend on the cache. */
enum { SHORT_PROMPT = 48 };

/* Arrays for rows_max rows from the arena. CARAT_EMEMORY. */
int batch_init(struct step *step, struct arena *arena, int32_t rows_max, struct carat_error *err);

void batch_clear(struct step *step);

/* Adds a row; `is_out`: its logits are wanted. Returns its place among the output rows, or -1. */
int32_t batch_add(struct step *step, int32_t id, int32_t position, int32_t sequence, bool is_out);

/* Fills in the next step: the newest token of every decoding sequence and its guesses, then the
 * rows of prompts, short ones first: n_rows of each sequence. slots[n_seq]: the sequence in each
 * slot, or NULL. Sets out_row of each. The hint (next_id) is given if exactly one prompt goes on
 * after this step: its next `chunk` rows or, if some sequence decodes, as many as it has in this
 * step. */
void batch_fill(struct step *step, struct sequence *const *slots, int32_t n_seq, int32_t chunk);

#endif
