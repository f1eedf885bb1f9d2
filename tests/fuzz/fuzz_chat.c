/* A request tree built from bytes. The keys and words that the template knows are likely, so
 * that most of it is reached. Rendering must succeed or say why not, and special ids of a
 * prompt never come from the request. */
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/mem.h"
#include "support/text_fixture.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct vocab *vocabulary(void)
{
    static struct text_fixture f; /* one for all inputs */
    if (!f.v) text_fixture_open(&f, 1024);
    return f.v;
}

static const char *const words[] = {"messages",
                                    "role",
                                    "content",
                                    "tools",
                                    "function",
                                    "name",
                                    "description",
                                    "parameters",
                                    "properties",
                                    "required",
                                    "type",
                                    "items",
                                    "enum",
                                    "nullable",
                                    "anyOf",
                                    "oneOf",
                                    "allOf",
                                    "$ref",
                                    "#/$defs/a",
                                    "#",
                                    "$defs",
                                    "a",
                                    "B",
                                    "system",
                                    "developer",
                                    "user",
                                    "assistant",
                                    "tool",
                                    "tool_calls",
                                    "tool_responses",
                                    "tool_call_id",
                                    "id",
                                    "arguments",
                                    "response",
                                    "reasoning",
                                    "reasoning_content",
                                    "text",
                                    "image_url",
                                    "object",
                                    "array",
                                    "string",
                                    "null",
                                    "enable_thinking",
                                    "preserve_thinking",
                                    "add_generation_prompt",
                                    " x ",
                                    "<|channel>t<channel|>y",
                                    "<turn|>",
                                    "\xC3\x89",
                                    ""};
enum { N_WORDS = sizeof words / sizeof *words };

struct source {
    const uint8_t *data;
    size_t size, at;
    struct arena arena;
    int n_nodes;
};

static uint8_t next(struct source *s)
{
    return s->at < s->size ? s->data[s->at++] : 0;
}

static const char *word(struct source *s, size_t *length)
{
    uint8_t i = next(s);
    if (i < N_WORDS) {
        *length = strlen(words[i]);
        return words[i];
    }
    *length = i % 8;
    if (*length > s->size - s->at) *length = s->size - s->at;
    const char *text = (const char *)s->data + s->at;
    s->at += *length;
    return *length ? text : "";
}

static struct carat_value value(struct source *s, int depth)
{
    struct carat_value v = {.kind = (enum carat_value_kind)(next(s) % 7)};
    size_t count = depth < 70 && s->n_nodes < 3000 ? next(s) % 6 : 0;
    s->n_nodes += (int)count;
    switch (v.kind) {
    case CARAT_NULL: break;
    case CARAT_BOOL: v.as.boolean = count & 1; break;
    case CARAT_INT: v.as.integer = (int64_t)next(s) - 128; break;
    case CARAT_REAL: v.as.real = ((double)next(s) - 128) / 7; break;
    case CARAT_STRING: v.as.string.data = word(s, &v.as.string.length); break;
    case CARAT_ARRAY: {
        struct carat_value *items = arena_take(&s->arena, count, sizeof *items);
        for (size_t i = 0; i < count; i++) items[i] = value(s, depth + 1);
        v.as.array.items = items;
        v.as.array.count = count;
        break;
    }
    case CARAT_OBJECT: {
        struct carat_member *members = arena_take(&s->arena, count, sizeof *members);
        for (size_t i = 0; i < count; i++) {
            members[i].key.data = word(s, &members[i].key.length);
            members[i].value = value(s, depth + 1);
        }
        v.as.object.members = members;
        v.as.object.count = count;
        break;
    }
    }
    return v;
}

/* {"messages": [{"role": .., ..}], "tools": [{"function": {"name": "f", ..}}], ..} */
static struct carat_value request(struct source *s)
{
    static const char *const keys[] = {"messages", "tools", "enable_thinking",
                                       "preserve_thinking", "add_generation_prompt"};
    struct carat_value v = {.kind = CARAT_OBJECT};
    struct carat_member *members = arena_take(&s->arena, 5, sizeof *members);
    for (size_t i = 0; i < 5; i++) {
        members[i].key.data = keys[i];
        members[i].key.length = strlen(keys[i]);
        members[i].value.kind = CARAT_BOOL;
        members[i].value.as.boolean = next(s) & 1;
    }
    size_t count = 1 + next(s) % 5, n_tools = next(s) % 3;
    struct carat_value *list = arena_take(&s->arena, count, sizeof *list);
    struct carat_value *tools = arena_take(&s->arena, n_tools, sizeof *tools);
    for (size_t i = 0; i < count; i++) list[i] = value(s, 2);
    for (size_t i = 0; i < n_tools; i++) tools[i] = value(s, 2);
    members[0].value = (struct carat_value){.kind = CARAT_ARRAY};
    members[0].value.as.array.items = list;
    members[0].value.as.array.count = count;
    members[1].value = (struct carat_value){.kind = CARAT_ARRAY};
    members[1].value.as.array.items = tools;
    members[1].value.as.array.count = n_tools;
    v.as.object.members = members;
    v.as.object.count = 5;
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct vocab *v = vocabulary();
    struct source s = {.data = data, .size = size};
    struct carat_value tree = next(&s) & 3 ? request(&s) : value(&s, 0);
    enum carat_size model = next(&s) & 1 ? CARAT_SIZE_LARGE : CARAT_SIZE_SMALL;
    struct carat_error err;
    char *text;
    size_t length, count;
    int32_t *ids;
    int status = chat_text(model, &tree, &text, &length, &err);
    carat_assert(status == CARAT_OK || status == CARAT_EUSAGE);
    carat_assert(chat_tokenize(v, model, &tree, &ids, &count, &err) == status);
    for (size_t i = 0; i < count; i++)
        carat_assert((ids[i] == vocab_special(v, VOCAB_BOS)) == (i == 0));
    mem_free(text);
    mem_free(ids);
    arena_deinit(&s.arena);
    return 0;
}
