/* Where the weights of a plan go, decided before any is there: a function of the device's options,
 * the plan and the room that is left. Nothing is noted anywhere; the answer is handed to bind. */
#ifndef CUDA_PLACEMENT_H
#define CUDA_PLACEMENT_H

#include "backend/cuda/device.h"

/* See backend.h. */
void cuda_place_weights(const struct device *d, const struct plan *plan, const struct room *room,
                        struct placement *out);

/* The least placement with tables in this place: of one in the file, as many rows on the device as
 * steps need; no mirrors. */
struct placement placement_least(const struct plan *plan, enum table_place tables);

#endif
