/* Where the time of a step goes on a GPU: an event after every launch. */
#ifndef CUDA_PROFILE_H
#define CUDA_PROFILE_H

#include "backend/cuda/device.h"
#include "backend/time_table.h"

struct profile;

int profile_open(struct profile **out, struct carat_error *err);
void profile_close(struct profile *p); /* NULL is fine */

/* A step begins on the stream. */
void profile_begin(struct profile *p, cudaStream_t stream);

/* What was launched since the last mark. */
void profile_mark(struct profile *p, cudaStream_t stream, struct time_work work);

/* After the step: adds its times up. `is_decode`: a few rows. `seconds`: the step as the host saw
 * it. */
void profile_end(struct profile *p, bool is_decode, double seconds);

/* The tables, as text for a person: prefill and decode; shares of the device's limits. */
void profile_print(const struct profile *p, const struct device_limits *limits, struct buf *out);

#endif
