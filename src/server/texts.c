#include "server/texts.h"

#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"
#include "json/json_fields.h"
#include "server/pieces.h"
#include "server/prompts.h"

struct text_inquiry {
    const carat_model *model;
    const struct ask_limits *limits;
    int32_t n_ctx;
    const struct buf *body;
    struct json *json;
};

static void put_ids(struct json *j, const char *key, const int32_t *ids, size_t n)
{
    json_key_array(j, key);
    for (size_t i = 0; i < n; i++) json_int(j, ids[i]);
    json_end_array(j);
}

/* ---- Tokens of a text ------------------------------------------------------------------- */

/* Text where it is valid UTF-8, else bytes: as llama-server has it. */
static void put_piece(struct json *j, const carat_model *model, int32_t id)
{
    char bytes[PIECE_BYTES_MAX];
    size_t n = piece_bytes(model, id, bytes);
    json_begin_object(j);
    json_key_int(j, "id", id);
    json_key(j, "piece");
    if (utf8_valid_prefix(bytes, n) == n) {
        json_text(j, bytes, n);
    } else {
        json_begin_array(j);
        for (size_t i = 0; i < n; i++) json_int(j, (unsigned char)bytes[i]);
        json_end_array(j);
    }
    json_end_object(j);
}

static void put_tokens(const struct text_inquiry *q, const int32_t *ids, size_t n, bool with_pieces)
{
    if (!with_pieces) {
        put_ids(q->json, "tokens", ids, n);
    } else {
        json_key_array(q->json, "tokens");
        for (size_t i = 0; i < n; i++) put_piece(q->json, q->model, ids[i]);
        json_end_array(q->json);
    }
    json_key_int(q->json, "count", (int64_t)n);
    json_key_int(q->json, "max_model_len", q->n_ctx);
}

/* "content" as llama-server takes it, or "prompt" as vLLM does. */
static int tokenize_text(const struct text_inquiry *q, const struct carat_value *root,
                         const char *key, bool adds_special, struct carat_error *err)
{
    const struct carat_value *text = json_member(root, key);
    bool parses = true, with_pieces = false;
    int32_t *ids;
    size_t n;
    if (text->kind != CARAT_STRING) return json_wrong_kind(key, "a string", text, err);
    TRY(json_read_flag(root, "parse_special", &parses, err));
    TRY(json_read_flag(root, "with_pieces", &with_pieces, err));
    TRY(json_read_flag(root, "add_special", &adds_special, err));
    enum carat_special special = parses ? CARAT_SPECIAL_ALL : CARAT_SPECIAL_USER_DEFINED;
    TRY(carat_tokenize(q->model, text->as.string.data, text->as.string.length, special,
                       adds_special, &ids, &n, err));
    put_tokens(q, ids, n, with_pieces);
    carat_free(ids);
    return CARAT_OK;
}

/* Reads the body as a request of that API; the caller closes the ask, after a failure too. */
static int read_ask(const struct text_inquiry *q, enum api api, struct ask *ask,
                    struct carat_error *err)
{
    const struct carat_sampling sampling = {0};
    *ask = (struct ask){0};
    return ask_read(ask, api, buf_text(q->body), q->body->length, &sampling, q->limits, err);
}

static int tokenize_chat(const struct text_inquiry *q, struct carat_error *err)
{
    struct ask ask;
    int32_t *ids = NULL;
    size_t n = 0;
    int status = read_ask(q, API_CHAT, &ask, err);
    if (status == CARAT_OK)
        status = carat_chat_tokenize(q->model, &ask.request.root, &ids, &n, err);
    if (status == CARAT_OK)
        put_tokens(q, ids, n, false);
    else
        ask_use_names(&ask, err);
    carat_free(ids);
    ask_close(&ask);
    return status;
}

static int tokenize(const struct text_inquiry *q, const struct carat_value *root,
                    struct carat_error *err)
{
    bool has_prompt = json_member(root, "prompt")->kind != CARAT_NULL;
    if (json_member(root, "messages")->kind != CARAT_NULL) return tokenize_chat(q, err);
    return tokenize_text(q, root, has_prompt ? "prompt" : "content", has_prompt, err);
}

/* ---- The text of tokens ----------------------------------------------------------------- */

static int read_ids(const struct text_inquiry *q, const struct carat_value *tokens, int32_t *ids,
                    struct carat_error *err)
{
    int32_t n_vocab = carat_model_info(q->model)->n_vocab;
    for (size_t i = 0; i < tokens->as.array.count; i++) {
        char where[32];
        int64_t id;
        snprintf(where, sizeof where, "tokens[%zu]", i);
        TRY(json_whole(&tokens->as.array.items[i], where, 0, n_vocab - 1, &id, err));
        ids[i] = (int32_t)id;
    }
    return CARAT_OK;
}

static int detokenize(const struct text_inquiry *q, const struct carat_value *root,
                      struct carat_error *err)
{
    const struct carat_value *tokens = json_member(root, "tokens");
    char *text = NULL;
    size_t length;
    if (tokens->kind != CARAT_ARRAY) return json_wrong_kind("tokens", "an array", tokens, err);
    size_t n = tokens->as.array.count;
    int32_t *ids = mem_alloc(n, sizeof *ids);
    int status = ids ? read_ids(q, tokens, ids, err) : err_no_memory(err, "tokens", n);
    if (status == CARAT_OK) status = carat_detokenize(q->model, ids, n, true, &text, &length, err);
    if (status == CARAT_OK) {
        json_key_text(q->json, "content", text, length);
        json_key(q->json, "prompt"); /* vLLM's name for it */
        json_text(q->json, text, length);
    }
    mem_free(ids);
    carat_free(text);
    return status;
}

/* ---- Whole requests --------------------------------------------------------------------- */

static int apply_template(const struct text_inquiry *q, struct carat_error *err)
{
    struct ask ask;
    enum carat_size size = carat_model_info(q->model)->size;
    char *text = NULL;
    size_t length = 0;
    int status = read_ask(q, API_CHAT, &ask, err);
    if (status == CARAT_OK) status = carat_chat_text(size, &ask.request.root, &text, &length, err);
    if (status == CARAT_OK) {
        json_key_text(q->json, "prompt", text, length);
    } else {
        ask_use_names(&ask, err);
    }
    carat_free(text);
    ask_close(&ask);
    return status;
}

/* Ids of the first prompt of a request, as an answer would be asked for. */
static int make_ids(const struct text_inquiry *q, enum api api, struct prompts *out,
                    struct carat_error *err)
{
    struct ask ask;
    int32_t n_prompt;
    int status = read_ask(q, api, &ask, err);
    if (status == CARAT_OK) {
        status = prompts_make(out, q->model, &ask, INT32_MAX, &n_prompt, err);
        if (status != CARAT_OK) ask_use_names(&ask, err);
    }
    ask_close(&ask);
    return status;
}

static int render(const struct text_inquiry *q, enum api api, struct carat_error *err)
{
    struct prompts prompts = {0};
    TRY(make_ids(q, api, &prompts, err));
    put_ids(q->json, "token_ids", prompts.items[0].ids, prompts.items[0].n);
    prompts_deinit(&prompts);
    return CARAT_OK;
}

static int count_tokens(const struct text_inquiry *q, enum api api, struct carat_error *err)
{
    struct prompts prompts = {0};
    TRY(make_ids(q, api, &prompts, err));
    if (api == API_RESPONSES) {
        json_key_string(q->json, "object", "response.input_tokens");
    }
    json_key_int(q->json, "input_tokens", (int64_t)prompts.items[0].n);
    prompts_deinit(&prompts);
    return CARAT_OK;
}

/* What reads a document of its own, and not a request of an API. */
static int answer_plain(const struct text_inquiry *q, enum text_kind kind, struct carat_error *err)
{
    struct json_tree tree;
    TRY(json_tree_read(&tree, buf_text(q->body), q->body->length, JSON_PLAIN, err));
    const struct carat_value *model = json_member(&tree.root, "model");
    int status = CARAT_OK;
    if (tree.root.kind != CARAT_OBJECT)
        status = err_set(err, CARAT_EUSAGE, "request: an object expected, %s found",
                         json_kind_name(&tree.root));
    else if (model->kind == CARAT_STRING)
        status = ask_check_model(q->limits, model->as.string.data, err);
    if (status == CARAT_OK)
        status =
            kind == TEXT_TOKENIZE ? tokenize(q, &tree.root, err) : detokenize(q, &tree.root, err);
    json_tree_free(&tree);
    return status;
}

static int answer(const struct text_inquiry *q, enum text_kind kind, struct carat_error *err)
{
    switch (kind) {
    case TEXT_TOKENIZE:
    case TEXT_DETOKENIZE: return answer_plain(q, kind, err);
    case TEXT_TEMPLATE: return apply_template(q, err);
    case TEXT_RENDER_CHAT: return render(q, API_CHAT, err);
    case TEXT_RENDER_COMPLETION: return render(q, API_COMPLETIONS, err);
    case TEXT_COUNT_MESSAGES: return count_tokens(q, API_MESSAGES, err);
    case TEXT_COUNT_RESPONSES: return count_tokens(q, API_RESPONSES, err);
    }
    return err_set(err, CARAT_EINTERNAL, "texts: unknown kind");
}

int texts_answer(enum text_kind kind, const carat_model *model, const struct ask_limits *limits,
                 int32_t n_ctx, const struct buf *body, struct buf *out, struct carat_error *err)
{
    struct json j = {.out = out};
    const struct text_inquiry q = {
        .model = model, .limits = limits, .n_ctx = n_ctx, .body = body, .json = &j};
    json_begin_object(&j);
    TRY(answer(&q, kind, err));
    json_end_object(&j);
    buf_add_char(out, '\n');
    return out->failed ? err_no_memory(err, "reply", out->length) : CARAT_OK;
}
