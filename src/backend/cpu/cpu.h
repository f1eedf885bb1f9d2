/* The CPU backend: the plan's ops on all cores with the processor's vector instructions.
 *
 * A program is a list of steps that all workers walk through together. Row steps (norms,
 * activations, rotation) give each worker a stretch of rows; products give out tiles of weight
 * rows; a barrier stands only where one worker needs what another has written. */
#ifndef BACKEND_CPU_H
#define BACKEND_CPU_H

#include "backend/backend.h"

extern const struct backend cpu_backend;

#endif
