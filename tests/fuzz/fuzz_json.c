/* JSON text as the program reads it: as a plain value and as a chat request, which is rendered.
 * What was read is written; from the second time on that changes nothing. (The first time -0.0
 * becomes -0, which readers take for an integer.)
 *
 * Subject: src/json/chat_request.c 95
 * Subject: src/json/json_tree.c 100
 * Subject: src/json/json_value.c 100
 * Subject: src/base/json_writer.c 90 */
#include <string.h>

#include "base/assert.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "json/chat_request.h"
#include "fuzz/source.h"
#include "support/values.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_json(struct json_tree *tree, const char *text, size_t length,
                     enum json_purpose purpose)
{
    struct carat_error err = {0};
    *tree = (struct json_tree){0};
    int status = json_tree_read(tree, text, length, purpose, &err);
    carat_assert(status == CARAT_OK || (status == CARAT_EUSAGE && err.message[0]));
    return status;
}

/* Writes `text` out again, as far as it can be read. */
static bool rewrite(const char *text, size_t length, struct buf *out)
{
    struct json_tree tree;
    struct json j = {.out = out};
    bool is_read = read_json(&tree, text, length, JSON_PLAIN) == CARAT_OK;
    if (is_read) {
        const struct carat_value *member = json_member(&tree.root, "messages");
        carat_assert(member->kind <= CARAT_OBJECT);
        struct carat_value again;
        struct carat_error err = {0};
        carat_assert(json_tree_add(&tree, text, length, &again, &err) == CARAT_OK);
        carat_assert(again.kind == tree.root.kind);
        put_value(&j, &tree.root);
    }
    json_tree_free(&tree);
    return is_read;
}

/* What a request asks for is within its bounds. */
static void check_request(const char *text, size_t length)
{
    static const struct carat_sampling defaults = {.temperature = 1.0f};
    struct chat_request r;
    struct carat_error err = {0};
    int status = chat_request_read(&r, text, length, &defaults, &err);
    bool is_refused = status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED;
    carat_assert(status == CARAT_OK || (is_refused && err.message[0]));
    if (status == CARAT_OK) {
        carat_assert(r.sampling.temperature >= 0 && r.sampling.top_k >= 0);
        carat_assert(r.max_tokens >= -1 && r.n_top_logprobs <= CARAT_TOP_LOGPROBS_MAX);
        carat_assert(r.n_stops <= CARAT_STOPS_MAX && r.n_bias <= CARAT_BIAS_MAX);
        for (size_t i = 0; i < r.n_stops; i++) {
            size_t n = strlen(r.stops[i]);
            carat_assert(n > 0 && n <= CARAT_STOP_BYTES_MAX);
        }
        for (size_t i = 0; i < r.n_bias; i++) carat_assert(r.bias[i].id >= 0);
    }
    chat_request_close(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf first = {0}, second = {0}, third = {0};
    struct json_tree tree;
    struct carat_error err = {0};
    char *text;
    size_t length;
    const char *json = size > 0 ? (const char *)data : "";
    if (rewrite(json, size, &first)) {
        carat_assert(rewrite(buf_text(&first), first.length, &second));
        carat_assert(rewrite(buf_text(&second), second.length, &third));
        carat_assert(second.length == third.length);
        carat_assert(memcmp(buf_text(&second), buf_text(&third), second.length) == 0);
    }
    if (read_json(&tree, json, size, JSON_CHAT_REQUEST) == CARAT_OK) {
        int status = chat_text(CARAT_SIZE_SMALL, &tree.root, &text, &length, &err);
        carat_assert(status == CARAT_OK || (status == CARAT_EUSAGE && err.message[0]));
        mem_free(text);
    }
    json_tree_free(&tree);
    check_request(json, size);
    buf_deinit(&first);
    buf_deinit(&second);
    buf_deinit(&third);
    return 0;
}
