/* Chat requests that the template accepts: messages of known roles with calls and answers, tools
 * with schemas that refer to each other. Every choice is a byte of the input, and any byte may
 * also put something else in its place. Rendering must succeed or say why not, and special ids of
 * a prompt never come from the request.
 *
 * Subject: src/text/chat.c 100
 * Subject: src/text/chat_schema.c 95
 * Subject: src/text/chat_tools.c 90
 * Subject: src/text/chat_value.c 95 */
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/mem.h"
#include "fuzz/source.h"
#include "support/text_fixture.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NODES_MAX = 400, DEPTH_MAX = 100 };

struct request {
    struct source bytes;
    struct arena arena;
    int n_nodes;
};

typedef struct carat_value (*maker)(struct request *r, int depth);

/* A member that is likely, and the usual kind of its value. */
struct field {
    const char *key;
    maker make;
};

/* ---- Values ----------------------------------------------------------------------------- */

static struct carat_value text_of(const char *text, size_t length)
{
    struct carat_value v = {.kind = CARAT_STRING};
    v.as.string.data = text;
    v.as.string.length = length;
    return v;
}

/* clang-format off */
static struct carat_value word(struct request *r, int depth)
{
    static const char *const words[] = {
        "a", "B", "", "string", "object", "array", "null", "STRING", "integer", "boolean", "#",
        "#/$defs/a", "#/$defs/b", "#/properties/a", "#/properties/a/items", "#/allOf/0",
        "#/$defs/a/anyOf/1", "~0~1", "#/~1", "<|\"|>", "<turn|>", "<|turn>",
        "<|channel>x<channel|>", " \t\n", "text", "image_url", "audio", "f", "{\"a\":[1,\"x\"]}",
        "\xC3\x89", "\xff"};
    (void)depth;
    uint8_t i = next_byte(&r->bytes);
    if (i < sizeof words / sizeof *words) return text_of(words[i], strlen(words[i]));
    size_t length = i % 16;
    const char *text = next_bytes(&r->bytes, &length);
    return text_of(text, length);
}
/* clang-format on */

static size_t next_count(struct request *r, size_t most)
{
    size_t n = r->n_nodes > NODES_MAX ? 0 : next_byte(&r->bytes) % (most + 1);
    r->n_nodes += (int)n;
    return n;
}

static struct carat_value array_of(struct request *r, int depth, maker item, size_t most)
{
    struct carat_value v = {.kind = CARAT_ARRAY};
    size_t n = next_count(r, most);
    struct carat_value *items = arena_take(&r->arena, n + 1, sizeof *items);
    for (size_t i = 0; i < n; i++) items[i] = item(r, depth + 1);
    v.as.array.items = items;
    v.as.array.count = n;
    return v;
}

static struct carat_value any(struct request *r, int depth);

static void put_member(struct carat_member *m, const char *key, struct carat_value value)
{
    m->key.data = key;
    m->key.length = strlen(key);
    m->value = value;
}

/* An object with the fields `first` and then up to `most` of `fields`, in any order. Some come
 * twice, some have a value of another kind, some have any name. */
static struct carat_value object_of(struct request *r, int depth, const struct field *first,
                                    const struct field *fields, size_t n_fields, size_t most)
{
    struct carat_value v = {.kind = CARAT_OBJECT};
    size_t n = next_count(r, most) + (first != NULL), i = 0;
    struct carat_member *m = arena_take(&r->arena, n + 1, sizeof *m);
    if (first) put_member(&m[i++], first->key, first->make(r, depth + 1));
    for (; i < n; i++) {
        uint8_t choice = next_byte(&r->bytes);
        size_t k = choice % (n_fields + 1);
        if (k < n_fields) {
            maker make = choice & 128 ? any : fields[k].make;
            put_member(&m[i], fields[k].key, make(r, depth + 1));
        } else {
            struct carat_value key = word(r, 0);
            m[i].key.data = key.as.string.data;
            m[i].key.length = key.as.string.length;
            m[i].value = any(r, depth + 1);
        }
    }
    v.as.object.members = m;
    v.as.object.count = n;
    return v;
}
#define OBJECT(r, depth, first, fields, most)                                                      \
    object_of(r, depth, first, fields, sizeof(fields) / sizeof *(fields), most)

static struct carat_value boolean(struct request *r, int depth)
{
    (void)depth;
    struct carat_value v = {.kind = CARAT_BOOL};
    v.as.boolean = next_byte(&r->bytes) & 1;
    return v;
}

static struct carat_value number(struct request *r, bool is_real)
{
    struct carat_value v = {.kind = is_real ? CARAT_REAL : CARAT_INT};
    uint64_t bits = (uint64_t)next_u32(&r->bytes) << 32 | next_u32(&r->bytes);
    if (is_real)
        memcpy(&v.as.real, &bits, sizeof bits);
    else
        v.as.integer = (int64_t)(bits >> bits % 64);
    return v;
}

static struct carat_value any(struct request *r, int depth)
{
    uint8_t kind = next_byte(&r->bytes) % 8;
    if (depth > DEPTH_MAX && kind > 5) kind = 4;
    switch (kind) {
    case 0: return (struct carat_value){.kind = CARAT_NULL};
    case 1: return boolean(r, depth);
    case 2: return number(r, false);
    case 3: return number(r, true);
    case 6: return array_of(r, depth, any, 4);
    case 7: return object_of(r, depth, NULL, NULL, 0, 4);
    default: return word(r, depth);
    }
}

/* ---- Tools ------------------------------------------------------------------------------ */

static struct carat_value schema(struct request *r, int depth);

static struct carat_value schemas(struct request *r, int depth)
{
    return array_of(r, depth, schema, 4);
}

static struct carat_value strings(struct request *r, int depth)
{
    return array_of(r, depth, word, 4);
}

static struct carat_value named_schemas(struct request *r, int depth)
{
    static const struct field fields[] = {{"a", schema}, {"b", schema}, {"C", schema}};
    size_t most = next_byte(&r->bytes) % 32 ? 4 : 100; /* many names take another look-up */
    return OBJECT(r, depth, NULL, fields, most);
}

static struct carat_value usual_type(struct request *r, int depth)
{
    static const char *const types[] = {"object", "array", "string", "integer"};
    uint8_t choice = next_byte(&r->bytes) % 8;
    if (choice >= 4) return word(r, depth);
    return text_of(types[choice], strlen(types[choice]));
}

static struct carat_value type(struct request *r, int depth)
{
    return next_byte(&r->bytes) % 4 ? word(r, depth) : strings(r, depth);
}

static struct carat_value schema(struct request *r, int depth)
{
    static const struct field with_type = {"type", usual_type};
    static const struct field fields[] = {{"type", type},
                                          {"properties", named_schemas},
                                          {"items", schema},
                                          {"$ref", word},
                                          {"allOf", schemas},
                                          {"anyOf", schemas},
                                          {"oneOf", schemas},
                                          {"required", strings},
                                          {"enum", strings},
                                          {"description", word},
                                          {"nullable", boolean},
                                          {"$defs", named_schemas},
                                          {"definitions", named_schemas}};
    if (depth > DEPTH_MAX - 10) return word(r, depth);
    return OBJECT(r, depth, next_byte(&r->bytes) % 4 ? &with_type : NULL, fields, 6);
}

static struct carat_value function_name(struct request *r, int depth)
{
    (void)r, (void)depth;
    return text_of("f", 1);
}

static struct carat_value function(struct request *r, int depth)
{
    static const struct field name = {"name", function_name};
    static const struct field fields[] = {{"name", word},
                                          {"parameters", schema},
                                          {"parameters", schema},
                                          {"description", word},
                                          {"response", schema}};
    return OBJECT(r, depth, &name, fields, 4);
}

static struct carat_value tool(struct request *r, int depth)
{
    static const struct field is_function = {"function", function};
    static const struct field fields[] = {{"type", word}, {"function", function}};
    return OBJECT(r, depth, &is_function, fields, 1);
}

/* ---- Messages --------------------------------------------------------------------------- */

static struct carat_value called(struct request *r, int depth)
{
    static const struct field name = {"name", word};
    static const struct field fields[] = {{"arguments", any}, {"name", word}};
    return OBJECT(r, depth, &name, fields, 2);
}

static struct carat_value call(struct request *r, int depth)
{
    static const struct field is_function = {"function", called};
    static const struct field fields[] = {{"id", word}, {"type", word}, {"function", called}};
    return OBJECT(r, depth, &is_function, fields, 2);
}

static struct carat_value calls(struct request *r, int depth)
{
    return array_of(r, depth, call, 3);
}

static struct carat_value part(struct request *r, int depth)
{
    static const struct field fields[] = {{"type", word}, {"text", word}};
    return OBJECT(r, depth, NULL, fields, 3);
}

static struct carat_value content(struct request *r, int depth)
{
    uint8_t choice = next_byte(&r->bytes) % 6;
    return choice > 1 ? word(r, depth) : choice ? array_of(r, depth, part, 3) : any(r, depth);
}

static struct carat_value role(struct request *r, int depth)
{
    static const char *const roles[] = {"user",      "assistant", "tool", "system",
                                        "developer", "assistant", "tool", "user"};
    (void)depth;
    const char *name = roles[next_byte(&r->bytes) % 8];
    return text_of(name, strlen(name));
}

static struct carat_value answer(struct request *r, int depth)
{
    static const struct field fields[] = {{"name", word}, {"response", any}};
    return OBJECT(r, depth, NULL, fields, 2);
}

static struct carat_value answers(struct request *r, int depth)
{
    return array_of(r, depth, answer, 3);
}

static struct carat_value message(struct request *r, int depth)
{
    static const struct field with_role = {"role", role};
    static const struct field fields[] = {{"content", content}, {"tool_calls", calls},
                                          {"reasoning", word},  {"tool_call_id", word},
                                          {"name", word},       {"tool_responses", answers},
                                          {"content", content}, {"reasoning_content", word},
                                          {"role", word}};
    return OBJECT(r, depth, &with_role, fields, 5);
}

static struct carat_value whole_request(struct request *r, uint8_t flags)
{
    static const struct {
        const char *key;
        int bit; /* of the flags */
    } switches[] = {{"enable_thinking", 0},
                    {"preserve_thinking", 1},
                    {"add_generation_prompt", 2},
                    {"continue_final_message", 5}};
    struct carat_value v = {.kind = CARAT_OBJECT};
    struct carat_member *m = arena_take(&r->arena, 6, sizeof *m);
    for (int i = 0; i < 4; i++) {
        struct carat_value is_on = {.kind = CARAT_BOOL};
        is_on.as.boolean = flags >> switches[i].bit & 1;
        put_member(&m[i], switches[i].key, is_on);
    }
    put_member(&m[4], "tools", array_of(r, 0, tool, 3));
    put_member(&m[5], "messages", array_of(r, 0, message, 6));
    v.as.object.members = m;
    v.as.object.count = 6;
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct vocab *v = shared_vocab();
    struct request r = {.bytes = {data, size, 0}};
    uint8_t flags = next_byte(&r.bytes);
    struct carat_value tree = flags >= 250 ? any(&r, 0) : whole_request(&r, flags);
    enum carat_size model = flags & 16 ? CARAT_SIZE_LARGE : CARAT_SIZE_SMALL;
    struct carat_error err = {0};
    char *text;
    size_t length, count;
    int32_t *ids;
    int status = chat_text(model, &tree, &text, &length, &err);
    carat_assert(status == CARAT_OK || (status == CARAT_EUSAGE && err.message[0]));
    carat_assert(chat_tokenize(v, model, &tree, 1 << 20, &ids, &count, &err) == status);
    for (size_t i = 0; i < count; i++)
        carat_assert((ids[i] == vocab_special(v, VOCAB_BOS)) == (i == 0));
    mem_free(text);
    mem_free(ids);
    arena_deinit(&r.arena);
    return 0;
}
