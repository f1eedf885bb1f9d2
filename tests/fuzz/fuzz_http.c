/* Targets of requests, headers and keys of any content. A path that passes has nothing in it that
 * two readers could take for different paths; headers that pass have one length at most and no byte
 * that a reader has left out; nobody without the key gets in.
 *
 * Subject: src/server/http_target.c 100
 * Subject: src/server/http_first.c 100
 * Subject: src/server/http_framing.c 95
 * Subject: src/server/guard.c 60
 * Subject: src/server/keys.c 50 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/mem.h"
#include "fuzz/source.h"
#include "server/guard.h"
#include "server/http_first.h"
#include "server/http_framing.h"

enum { FIELDS_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_target(const struct http_target *t)
{
    carat_assert(t->path[0] == '/' && !strchr(t->path, '\\'));
    for (const char *c = t->path; *c; c++) carat_assert((unsigned char)*c >= 0x20 && *c != 0x7f);
    for (const char *c = t->path; (c = strstr(c, "/..")) != NULL; c += 3)
        carat_assert(c[3] != '/' && c[3] != '\0');
    const char *at = t->query;
    for (size_t i = 0; i < t->n_query; i++) { /* all of it is in the memory */
        carat_assert(http_target_query(t, at) != NULL);
        at += strlen(at) + 1;
        at += strlen(at) + 1;
    }
}

/* Splits the head of a request in place, as the library does, and counts its fields. */
static size_t split(char *head, struct framing *f, struct framing_field *fields, char **target)
{
    size_t n = 0;
    char *line = strstr(head, "\r\n"), *first = strchr(head, ' ');
    char *last =
        first && line && first < line ? memrchr(first + 1, ' ', (size_t)(line - first - 1)) : NULL;
    if (!last) return 0;
    *first = *last = line[0] = line[1] = '\0';
    *target = first + 1;
    f->method = head;
    f->version = last + 1;
    for (line += 2; n < FIELDS_MAX; n++) {
        char *end = strstr(line, "\r\n"),
             *colon = end ? memchr(line, ':', (size_t)(end - line)) : 0;
        if (!colon) break;
        *colon = end[0] = end[1] = '\0';
        char *value = colon + 1 + strspn(colon + 1, " \t");
        fields[n] = (struct framing_field){line, value, strlen(line), strlen(value)};
        line = end + 2;
    }
    f->header_bytes = (size_t)(line - head) + 2;
    return n;
}

static void check_head(const char *bytes, size_t length)
{
    struct framing_field fields[FIELDS_MAX];
    struct framing f = {.fields = fields, .is_in_place = true};
    struct http_target t = {0};
    char *head = mem_alloc(length + 3, 1), *target = NULL; /* room for the last line's end */
    memcpy(head, bytes, length);
    f.n = split(head, &f, fields, &target);
    if (target && !http_target_read(&t, target)) {
        struct framing_verdict verdict;
        f.target = &t;
        framing_check(&f, &verdict);
        check_target(&t);
        int lengths = 0;
        for (size_t i = 0; i < f.n; i++) {
            lengths += strcasecmp(fields[i].name, "Content-Length") == 0;
            lengths += strcasecmp(fields[i].name, "Transfer-Encoding") == 0;
        }
        carat_assert(verdict.status || lengths <= 1);
        carat_assert(verdict.status || verdict.has_body == (verdict.body_bytes > 0));
        carat_assert(!verdict.status == !verdict.why);
    }
    http_target_free(&t);
    mem_free(head);
}

/* A text of the input, or NULL. */
static const char *text(struct source *s, char out[64])
{
    size_t length = next_byte(s) & 63;
    if (length == 63) return NULL;
    const char *bytes = next_bytes(s, &length);
    memcpy(out, bytes, length);
    out[length] = '\0';
    return out;
}

static void check_guard(struct source *s)
{
    static const char *const keys[] = {"a key of this test"}, *const names[] = {"b.example"};
    static const char *const origins[] = {"https://b.example"};
    const struct guard_options options = {.keys = keys,
                                          .n_keys = next_byte(s) & 1,
                                          .allowed_hosts = names,
                                          .n_allowed_hosts = 1,
                                          .origins = origins,
                                          .n_origins = 1,
                                          .is_local = true};
    struct guard *g = NULL;
    struct guard_pass pass;
    char texts[6][64];
    carat_assert(guard_open(&g, &options, NULL) == CARAT_OK);
    const struct guard_view view = {.method = next_byte(s) & 1 ? "OPTIONS" : "POST",
                                    .host = text(s, texts[0]),
                                    .origin = text(s, texts[1]),
                                    .authorization = text(s, texts[2]),
                                    .x_api_key = text(s, texts[3]),
                                    .asked_method = text(s, texts[4]),
                                    .asked_headers = text(s, texts[5])};
    const bool goes_on = guard_decide(g, &view, false, &pass);
    if (goes_on && options.n_keys > 0) {
        carat_assert(pass.fairness != 0);
        carat_assert((view.authorization && strstr(view.authorization, keys[0])) ||
                     (view.x_api_key && strcmp(view.x_api_key, keys[0]) == 0));
    }
    for (size_t i = 0; i < pass.n_fields; i++) /* what goes into a reply ends no line */
        if (pass.fields[i].value != pass.origin)
            carat_assert(!strpbrk(pass.fields[i].value, "\r\n"));
    guard_close(g);
}

/* What the first bytes say stays true when more of them come. */
static void check_first(const char *bytes, size_t length)
{
    struct first_look all, part;
    const size_t head_max = 300;
    first_look(bytes, length, head_max, &all);
    carat_assert(strlen(all.path) < sizeof all.path && (all.status == 0) == (all.why == NULL));
    for (size_t n = 0; n < length && n < head_max; n++) {
        first_look(bytes, n, head_max, &part);
        carat_assert(part.status == 0 || part.status == all.status);
        carat_assert(!part.is_whole || (all.is_whole && all.status == 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = {.data = data, .size = size};
    const long before = mem_blocks_live();
    if (next_byte(&s) & 1) {
        check_guard(&s);
    } else {
        size_t length = size;
        const char *bytes = next_bytes(&s, &length);
        check_head(bytes, length);
        check_first(bytes, length);
    }
    carat_assert(mem_blocks_live() == before);
    return 0;
}
