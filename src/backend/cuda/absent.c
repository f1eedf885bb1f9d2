/* The CUDA backend of a build without nvcc: it has no devices. */
#include "backend/cuda/cuda.h"

static int absent_count(void)
{
    return 0;
}

static int absent_probe(struct carat_error *err)
{
    err_set(err, CARAT_EDEVICE, "cuda: built without CUDA");
    err_hint(err, "build this program on a machine with nvcc, or take --backend cpu");
    return CARAT_EDEVICE;
}

static int absent_open(struct device **out, int index, const struct device_options *options,
                       struct carat_error *err)
{
    (void)index, (void)options;
    *out = NULL;
    return absent_probe(err);
}

const struct backend cuda_backend = {
    .name = "cuda", .count = absent_count, .probe = absent_probe, .open = absent_open};
