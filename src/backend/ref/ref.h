/* The reference backend: plain scalar fp32 on one thread, canonical ops only. Every other backend
 * is compared with it, so it is written to be read: no blocking, no intrinsics, one function per
 * op. */
#ifndef BACKEND_REF_H
#define BACKEND_REF_H

#include "backend/backend.h"

extern const struct backend ref_backend;

#endif
