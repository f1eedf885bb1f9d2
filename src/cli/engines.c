#include "cli/engines.h"

#include <stdlib.h>
#include <string.h>

#include "base/allowance.h"
#include "base/status.h"
#include "carat_inspect.h"

static const char backend[] = "cuda"; /* the one that has several devices */

static int add(struct engines *e, const struct carat_engine_options *first, int64_t device,
               struct carat_error *err)
{
    if (e->n == ENGINES_MAX)
        return err_set(err, CARAT_EUSAGE, "--gpus: at most %d expected", ENGINES_MAX);
    for (size_t i = 0; i < e->n; i++)
        if (e->all[i].device == device)
            return err_set(err, CARAT_EUSAGE, "--gpus: GPU %d is named twice", (int)device);
    e->all[e->n] = *first;
    e->all[e->n].backend = backend;
    e->all[e->n++].device = (int32_t)device;
    return CARAT_OK;
}

static int add_all(struct engines *e, const struct carat_engine_options *first,
                   struct carat_error *err)
{
    struct carat_device device;
    for (int32_t i = 0; carat_device_at(i, &device, NULL) == CARAT_OK; i++)
        if (strcmp(device.backend, backend) == 0) TRY(add(e, first, device.index, err));
    return CARAT_OK;
}

static int add_listed(struct engines *e, const struct carat_engine_options *first, const char *list,
                      struct carat_error *err)
{
    enum { DEVICE_MAX = 63 };
    for (const char *at = list;; at++) {
        char *end;
        long device = strtol(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || device > DEVICE_MAX || (*end && *end != ',')) {
            err_set(err, CARAT_EUSAGE,
                    "--gpus: \"all\", or numbers of GPUs with commas between them expected, %s "
                    "found",
                    list);
            err_hint(err, "`carat devices` lists them");
            return CARAT_EUSAGE;
        }
        TRY(add(e, first, device, err));
        at = end;
        if (!*at) return CARAT_OK;
    }
}

static int read_gpus(struct engines *e, const struct options *o,
                     const struct carat_engine_options *first, struct carat_error *err)
{
    const char *list = opt_text(o, OPT_GPUS);
    if (opt_is_set(o, OPT_DEVICE))
        return err_set(err, CARAT_EUSAGE, "--device and --gpus do not go together");
    if (opt_is_set(o, OPT_REPLICAS))
        return err_set(err, CARAT_EUSAGE, "--replicas and --gpus do not go together");
    const char *asked = opt_text(o, OPT_BACKEND);
    if (strcmp(asked, "auto") != 0 && strcmp(asked, backend) != 0) {
        err_set(err, CARAT_EUSAGE, "--gpus: a backend of GPUs expected, --backend %s found", asked);
        err_hint(err, "several engines on the CPU: --replicas N");
        return CARAT_EUSAGE;
    }
    if (strcmp(list, "all") != 0) TRY(add_listed(e, first, list, err));
    TRY(carat_backend_probe(backend, err));
    return e->n > 0 ? CARAT_OK : add_all(e, first, err);
}

/* The engines share the threads that one engine would have. */
static void repeat(struct engines *e, const struct options *o,
                   const struct carat_engine_options *first)
{
    int32_t n_threads = first->n_threads > 0 ? first->n_threads : allowed_threads();
    e->n = (size_t)opt_int(o, OPT_REPLICAS);
    for (size_t i = 0; i < e->n; i++) {
        e->all[i] = *first;
        if (e->n == 1) continue;
        e->all[i].n_threads = n_threads / (int32_t)e->n;
        if (e->all[i].n_threads < 1) e->all[i].n_threads = 1;
    }
}

int engines_read(struct engines *out, const struct options *o,
                 const struct carat_engine_options *first, struct carat_error *err)
{
    out->n = 0;
    if (opt_is_set(o, OPT_GPUS)) return read_gpus(out, o, first, err);
    repeat(out, o, first);
    return CARAT_OK;
}
