/* carat: measuring, and looking inside. The rules are those of carat.h. */
#ifndef CARAT_INSPECT_H
#define CARAT_INSPECT_H

#include "carat.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Runs `n` tokens from position 0 and hands over rows of n_vocab softcapped logits for the
 * positions at[0..n_at) (ascending), or for every position when at is NULL, in order. The
 * engine must be idle. A non-zero return of `take` stops with that value. */
typedef int (*carat_logits_fn)(void *user, int32_t position, const float *logits, int32_t n_vocab);
int carat_score(carat_engine *engine, const int32_t *tokens, int32_t n, const int32_t *at,
                int32_t n_at, carat_logits_fn take, void *user, struct carat_error *err);

/* Seconds that prefill of n_prompt random tokens, then n_gen decode steps of `users`
 * sequences take, each after a context of `depth` tokens that is not counted. */
struct carat_measure {
    int32_t n_prompt, n_gen, depth, users;
};
int carat_measure(carat_engine *engine, const struct carat_measure *what, double *seconds,
                  struct carat_error *err);

/* The most bytes that the device reads in a second, and the most operations that it does on 8-bit
 * and on 16-bit numbers (a product and its sum are two; fp16 on GPUs, bf16 on CPUs with AMX). 0: it
 * has no such arithmetic, or too little memory to measure it. Measured once for each engine, in a
 * few tenths of a second: at opening with measure_limits, else now, in the memory that is left.
 * CARAT_EDEVICE: the backend cannot measure. */
struct carat_roofline {
    double read_bytes, int8_operations, fp16_operations;
};
int carat_measure_roofline(carat_engine *engine, struct carat_roofline *out,
                           struct carat_error *err);

/* The least that carat_measure has to read and to compute. */
struct carat_work {
    double bytes, operations;
};
void carat_measure_work(const carat_engine *engine, const struct carat_measure *what,
                        struct carat_work *out);

/* Where the time of all steps so far went, on an engine opened with `profile`: a table for
 * each phase. CARAT_EUSAGE: opened without `profile`, or the backend keeps no times. *out is
 * freed with carat_free. */
int carat_profile_text(const carat_engine *engine, char **out, struct carat_error *err);

/* The compiled program of a step of `rows` rows, `outs` of them with logits; one op a line.
 * *out is freed with carat_free. */
int carat_plan_text(const carat_model *model, const struct carat_engine_options *options,
                    int32_t rows, int32_t outs, char **out, struct carat_error *err);

/* The n-th device of all backends, from 0; CARAT_EUSAGE: there are fewer. Opening a GPU takes a
 * moment, because the speed of its arithmetic is measured. */
struct carat_device {
    char backend[16]; /* "cuda" */
    int32_t index;    /* among its backend's */
    char name[96];    /* "NVIDIA H200" */
    uint64_t memory_total, memory_available;
    char matmul[16]; /* "fp16", "int8": of prompt products, where there are several ways; or "" */
    double fp16_operations, int8_operations; /* a second, as measured; 0: not measured */
};
int carat_device_at(int32_t n, struct carat_device *out, struct carat_error *err);

/* Backends and devices as JSON: [{"backend":"ref","device":..,"memory":..}]. carat_free. */
int carat_devices_json(char **out, struct carat_error *err);

/* Backends of this build by index from 0, in order of preference; NULL after the last one. */
const char *carat_backend_name(int32_t index);

/* CARAT_OK when a backend has a device to use, else CARAT_EDEVICE with the reason: a driver that is
 * missing or too old, old devices only, a build without this backend. */
int carat_backend_probe(const char *name, struct carat_error *err);

/* Instruction sets that the CPU backend of this build knows, by index from 0, best first; NULL
 * after the last one. */
const char *carat_isa_name(int32_t index);

/* CARAT_OK when this machine runs the set, else CARAT_EUSAGE with the reason: a feature that the
 * processor lacks or the system does not permit, a compiler that was too old, an unknown name. */
int carat_isa_probe(const char *name, struct carat_error *err);

/* The backend that is used when none is named; the rows of a backend's prefill chunk (0: there is
 * no such backend). */
const char *carat_backend_default(void);
int32_t carat_backend_chunk(const char *backend);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
