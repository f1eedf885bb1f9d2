#include "engine/model_file.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/sampling_defaults.h"

enum { NAME_SHOWN_MAX = 200 };

void add_clean_value(const struct gguf *g, const char *key, struct buf *out)
{
    struct gguf_string name = {0};
    gguf_get_string(g, key, &name, NULL);
    for (size_t i = 0; i < name.length && out->length < NAME_SHOWN_MAX;) {
        uint32_t c = 0;
        int n = utf8_read(name.data + i, name.length - i, &c);
        if (n > 0 && !utf8_is_unprintable(c)) buf_add(out, name.data + i, (size_t)n);
        i += n > 0 ? (size_t)n : 1;
    }
}

/* NULL: out of memory. */
static const char *clean_name(struct carat_model *m)
{
    struct buf clean = {0};
    add_clean_value(m->gguf, "general.name", &clean);
    const char *kept =
        clean.failed ? NULL : arena_copy_text(&m->arena, buf_text(&clean), clean.length);
    buf_deinit(&clean);
    return kept;
}

/* The template differs between sizes in one line: the large ones begin their answer with an empty
 * thought. Only the small ones have per-layer embeddings. */
static enum carat_size size_class(const struct gemma_config *c)
{
    return c->n_ple ? CARAT_SIZE_SMALL : CARAT_SIZE_LARGE;
}

static int fill_info(struct carat_model *m, struct buf *note, struct carat_error *err)
{
    const struct gemma_config *c = &m->config;
    const char *about_vocab = vocab_note(m->vocab);
    struct carat_sampling sampling;
    int status = sampling_defaults_read(m->gguf, &sampling, note, err);
    if (status) return err ? err_within(err, "%s", gguf_path(m->gguf)) : status;
    if (about_vocab[0]) buf_printf(note, "%s%s", note->length ? "; " : "", about_vocab);
    m->info = (struct carat_model_info){
        .name = clean_name(m),
        .variant = config_variant(c),
        .size = size_class(c),
        .n_layer = c->n_layer,
        .n_embd = c->n_embd,
        .n_vocab = c->n_vocab,
        .n_ctx_train = c->n_ctx_train,
        .window = c->window,
        .n_expert = c->n_expert,
        .n_expert_used = c->n_expert_used,
        .n_params = m->weights.n_params,
        .file_bytes = gguf_file_bytes(m->gguf),
        .note = arena_copy_text(&m->arena, buf_text(note), note->length),
        .sampling = sampling,
    };
    gguf_quantisation(m->gguf, m->info.quantisation, sizeof m->info.quantisation);
    if (!m->info.name || !m->info.note || note->failed) return err_no_memory(err, "model", 256);
    return CARAT_OK;
}

static int read_model(struct carat_model *m, struct buf *note, struct carat_error *err)
{
    TRY(config_read(&m->config, m->gguf, err));
    TRY(weights_bind(&m->weights, &m->config, m->gguf, &m->arena, note, err));
    int status = vocab_open(&m->vocab, m->gguf, err);
    if (status) return err ? err_within(err, "%s", gguf_path(m->gguf)) : status;
    if (vocab_count(m->vocab) != m->config.n_vocab)
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"tokenizer.ggml.tokens\": %d tokens expected, one for each row "
                       "of token_embd.weight, %d found",
                       gguf_path(m->gguf), m->config.n_vocab, vocab_count(m->vocab));
    return fill_info(m, note, err);
}

static int open_tokens(struct carat_model *m, struct carat_error *err)
{
    m->tokens = mem_alloc(1, sizeof *m->tokens);
    if (!m->tokens) return err_no_memory(err, "model", sizeof *m->tokens);
    pthread_mutex_init(&m->tokens->lock, NULL);
    return CARAT_OK;
}

static void close_tokens(struct carat_model *m)
{
    if (!m->tokens) return;
    index_close(m->tokens->index);
    pthread_mutex_destroy(&m->tokens->lock);
    mem_free(m->tokens);
}

int carat_model_open(carat_model **out, const char *path, struct carat_error *err)
{
    *out = NULL;
    struct carat_model *m = mem_alloc(1, sizeof *m);
    if (!m) return err_no_memory(err, "model", sizeof *m);
    struct buf note = {0};
    int status = open_tokens(m, err);
    if (!status) status = gguf_open(&m->gguf, path, err);
    if (!status) status = read_model(m, &note, err);
    buf_deinit(&note);
    if (status)
        carat_model_close(m);
    else
        *out = m;
    return status;
}

void carat_model_close(carat_model *m)
{
    if (!m) return;
    close_tokens(m);
    vocab_close(m->vocab);
    gguf_close(m->gguf);
    arena_deinit(&m->arena);
    mem_free(m);
}

const struct carat_model_info *carat_model_info(const carat_model *m)
{
    return &m->info;
}
