#include "cli/bench_models.h"

#include "cli/offer.h"

static int measure_model(const struct options *o, const char *name,
                         const struct bench_visitor *visitor, struct carat_error *err)
{
    struct session s;
    int status = session_open_name(&s, o, name, err);
    if (status == CARAT_OK) status = visitor->measure(visitor->user, &s, err);
    session_close(&s);
    return status;
}

int bench_each_model(const struct options *o, const struct bench_visitor *visitor,
                     struct carat_error *err)
{
    const struct option_value *named = &o->values[OPT_BENCH_MODEL];
    bool has_arguments = o->n_arguments > 0 && !named->is_flag;
    const char *const *names = (const char *const *)(has_arguments ? o->arguments : named->list);
    size_t n = has_arguments ? o->n_arguments : named->n_list;
    if (named->is_flag) TRY(no_more_arguments(o, 0, err));
    struct buf other = {0};
    const char *only[1];
    named_by_options(o, &other); /* --hf-repo, --model-url */
    if (n == 0 && other.length) {
        only[0] = buf_text(&other);
        names = only;
        n = 1;
    }
    if (n == 0) {
        err_set(err, CARAT_EUSAGE, "bench: MODEL is missing");
        err_hint(err, "usage: carat bench MODEL...");
        return CARAT_EUSAGE;
    }
    for (size_t i = 0; i < n; i++) {
        struct buf path = {0};
        int status = model_get(o, names[i], &path, err);
        buf_deinit(&path);
        if (status != CARAT_OK) {
            buf_deinit(&other);
            return status;
        }
    }
    visitor->begin(visitor->user);
    int status = CARAT_OK;
    for (size_t i = 0; i < n && status == CARAT_OK; i++)
        status = measure_model(o, names[i], visitor, err);
    buf_deinit(&other);
    return status;
}
