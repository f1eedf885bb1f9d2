#include "cli/text_chunks.h"

#include <math.h>

#include "base/buf.h"
#include "carat_inspect.h"
#include "cli/files.h"

static int read_ids(int32_t **ids, size_t *n, const char *path, const carat_model *model,
                    struct carat_error *err)
{
    struct buf text = {0};
    int status = file_read(path, &text, err);
    if (status == CARAT_OK)
        status = carat_tokenize(model, buf_text(&text), text.length, CARAT_SPECIAL_USER_DEFINED,
                                true, ids, n, err);
    buf_deinit(&text);
    return status;
}

int text_chunks_read(struct text_chunks *out, const struct options *o, const carat_model *model,
                     struct carat_error *err)
{
    const char *path = opt_text(o, OPT_TEXT_FILE);
    int64_t most = opt_int(o, OPT_CHUNKS);
    size_t n = 0;
    *out = (struct text_chunks){.n_ctx = (uint32_t)opt_int(o, OPT_PPL_CTX)};
    TRY(read_ids(&out->ids, &n, path, model, err));
    out->n_chunks = n / out->n_ctx;
    if (most >= 0 && out->n_chunks > (size_t)most) out->n_chunks = (size_t)most;
    for (size_t c = 1; c < out->n_chunks; c++) out->ids[c * out->n_ctx] = out->ids[0];
    if (out->n_chunks > 0) return CARAT_OK;
    carat_free(out->ids);
    out->ids = NULL;
    err_set(err, CARAT_EUSAGE, "%s: %zu tokens, at least one chunk of %u expected", path, n,
            out->n_ctx);
    err_hint(err, "use a longer text, or a smaller chunk with -c");
    return CARAT_EUSAGE;
}

double log_sum_exp(const float *x, int32_t n)
{
    float most = x[0];
    for (int32_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)most);
    return log(sum) + (double)most;
}
