#include "server/prompts.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"

/* Refuses a prompt that cannot fit by its bytes alone, before all of it is tokenised. */
static int check_chat(const carat_model *model, const struct carat_value *root, int32_t n_ctx,
                      struct carat_error *err)
{
    char *text;
    size_t length;
    TRY(carat_chat_text(carat_model_info(model)->size, root, &text, &length, err));
    int status = carat_check_prompt_bytes(model, length, n_ctx, NULL, err);
    carat_free(text);
    return status;
}

static int copy_ids(const carat_model *model, const struct ask_prompt *from, struct prompt *out,
                    struct carat_error *err)
{
    int32_t n_vocab = carat_model_info(model)->n_vocab;
    if (from->n_ids == 0)
        return err_set(err, CARAT_EUSAGE, "prompt: token ids expected, none found");
    for (size_t i = 0; i < from->n_ids; i++)
        if (from->ids[i] < 0 || from->ids[i] >= n_vocab)
            return err_set(err, CARAT_EUSAGE, "prompt: token id %d, the vocabulary has 0 to %d",
                           from->ids[i], n_vocab - 1);
    out->ids = mem_alloc(from->n_ids, sizeof *out->ids);
    if (!out->ids) return err_no_memory(err, "prompt", from->n_ids * sizeof *out->ids);
    memcpy(out->ids, from->ids, from->n_ids * sizeof *out->ids);
    out->n = from->n_ids;
    return CARAT_OK;
}

static int make_raw(const carat_model *model, const struct ask_prompt *from, int32_t n_ctx,
                    struct prompt *out, struct carat_error *err)
{
    if (from->ids) return copy_ids(model, from, out, err);
    TRY(carat_check_prompt_bytes(model, from->length, n_ctx, NULL, err));
    enum carat_special special = from->has_special ? CARAT_SPECIAL_ALL : CARAT_SPECIAL_NONE;
    return carat_tokenize(model, from->text, from->length, special, true, &out->ids, &out->n, err);
}

static int make_chat(const carat_model *model, const struct ask *ask, int32_t n_ctx,
                     struct prompt *out, struct carat_error *err)
{
    TRY(check_chat(model, &ask->request.root, n_ctx, err));
    return carat_chat_tokenize(model, &ask->request.root, &out->ids, &out->n, err);
}

int prompts_make(struct prompts *out, const carat_model *model, const struct ask *ask,
                 int32_t n_ctx, int32_t *n_prompt, struct carat_error *err)
{
    size_t n = ask->n_prompts ? ask->n_prompts : 1;
    int status = CARAT_OK;
    *n_prompt = 0;
    *out = (struct prompts){.items = mem_alloc(n, sizeof *out->items), .n = n};
    if (!out->items) return err_no_memory(err, "prompts", n * sizeof *out->items);
    for (size_t i = 0; i < n && status == CARAT_OK; i++) {
        struct prompt *p = &out->items[i];
        status = ask->n_prompts ? make_raw(model, &ask->prompts[i], n_ctx, p, err)
                                : make_chat(model, ask, n_ctx, p, err);
        if (status != CARAT_OK || p->n < (size_t)n_ctx) continue;
        *n_prompt = (int32_t)p->n;
        status = err_set(err, CARAT_ECONTEXT,
                         "the prompt has %zu tokens, which exceeds the available context size of "
                         "%d tokens",
                         p->n, n_ctx);
        err_hint(err, "send fewer or shorter messages%s",
                 n_ctx < carat_model_info(model)->n_ctx_train
                     ? ", or start the server with a larger --ctx-size"
                     : "");
    }
    if (status != CARAT_OK) prompts_deinit(out);
    return status;
}

void prompts_deinit(struct prompts *p)
{
    for (size_t i = 0; p->items && i < p->n; i++) carat_free(p->items[i].ids);
    mem_free(p->items);
    *p = (struct prompts){0};
}
