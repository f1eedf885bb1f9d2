/* Bodies of requests: the first byte chooses the API. What is taken keeps every limit; what is
 * refused has a message, and its error is JSON in every API's words.
 *
 * Subject: src/api/ask.c 100
 * Subject: src/api/ask_take.c 95
 * Subject: src/api/completions_read.c 95
 * Subject: src/api/messages_read.c 95
 * Subject: src/api/responses_read.c 95
 * Subject: src/api/responses_tools.c 90
 * Subject: src/api/ollama_read.c 95
 * Subject: src/api/place.c 95
 * Subject: src/api/root.c 95
 * Subject: src/api/turns.c 95
 * Subject: src/api/translation.c 95
 * Subject: src/api/ask_names.c 50
 * Subject: src/api/tree.c 90
 * Subject: src/json/json_fields.c 95 */
#include <math.h>

#include "api/api_error.h"
#include "api/ask.h"
#include "base/assert.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct carat_sampling defaults = {
    .temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .repeat_last_n = 64};
static const struct ask_limits limits = {
    .n_max = 8, .messages_max = 40, .tools_max = 10, .stops_max = 16};

static void check_taken(const struct ask *ask)
{
    const struct chat_request *r = &ask->request;
    size_t prompts = ask->n_prompts ? ask->n_prompts : 1;
    carat_assert(ask->n >= 1 && (size_t)ask->n * prompts <= (size_t)limits.n_max);
    carat_assert(r->root.kind == CARAT_OBJECT);
    carat_assert(ask->model && ask->session && ask->request.thinking_max >= 0);
    carat_assert(r->max_tokens >= -1 && r->n_stops <= limits.stops_max);
    carat_assert(r->n_top_logprobs >= 0 && r->n_top_logprobs <= CARAT_TOP_LOGPROBS_MAX);
    carat_assert(r->sampling.temperature >= 0 && isfinite(r->sampling.temperature));
    carat_assert(r->sampling.top_p >= 0 && r->sampling.top_p <= 1 && r->sampling.top_k >= 0);
    for (size_t i = 0; i < ask->n_prompts; i++)
        for (size_t k = 0; k < ask->prompts[i].n_ids; k++)
            carat_assert(ask->prompts[i].ids[k] >= 0);
    const struct carat_value *messages = json_member(&r->root, "messages");
    carat_assert(ask->n_prompts || ask->is_unload || ask->is_load || messages->kind == CARAT_ARRAY);
}

/* A chat that was taken can be rendered, or is refused by the name of a member. */
static void check_prompt(const struct ask *ask)
{
    struct carat_error err = {0};
    char *text = NULL;
    size_t length;
    if (ask->n_prompts || ask->is_unload || ask->is_load) return;
    int status = carat_chat_text(CARAT_SIZE_LARGE, &ask->request.root, &text, &length, &err);
    ask_use_names(ask, &err);
    carat_assert(status == CARAT_OK || (err.code == status && err.message[0]));
    carat_free(text);
}

static void check_refused(const struct ask *ask, int status, struct carat_error *err)
{
    carat_assert(status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED);
    carat_assert(err->message[0]);
    ask_use_names(ask, err);
    carat_assert(err->message[0]);
    struct api_error error = api_error_from(err);
    carat_assert(error.status == 400);
    for (int family = FAMILY_OPENAI; family <= FAMILY_OLLAMA; family++) {
        struct buf out = {0};
        struct json_tree tree;
        api_error_body(&error, (enum api_family)family, "r1", &out);
        carat_assert(json_tree_read(&tree, buf_text(&out), out.length, JSON_PLAIN, NULL) == 0);
        json_tree_free(&tree);
        buf_deinit(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ask ask;
    struct carat_error err = {0};
    long before = mem_blocks_live();
    if (size == 0) return 0;
    enum api api = (enum api)(data[0] % API_COUNT);
    int status = ask_read(&ask, api, (const char *)data + 1, size - 1, &defaults, &limits, &err);
    if (status == CARAT_OK)
        check_taken(&ask), check_prompt(&ask);
    else
        check_refused(&ask, status, &err);
    ask_close(&ask);
    carat_assert(mem_blocks_live() == before);
    return 0;
}
