/* The CPU backend: the plan's ops on all cores with the processor's vector instructions.
 *
 * A program is a list of steps that all workers walk through together. In row steps (norms,
 * activations, rotation) each worker has a stretch of rows; in products workers take tiles of
 * weight rows. There is a barrier only where a worker needs what another has written. */
#ifndef BACKEND_CPU_H
#define BACKEND_CPU_H

#include "backend/backend.h"

extern const struct backend cpu_backend;

#endif
