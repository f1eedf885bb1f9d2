/* Tool calls as a grammar: schema -> random arguments that fit -> the model's syntax, as the chat
 * template writes it -> allowed id by id -> parser -> the same JSON. And what tool_choice,
 * parallel_tool_calls and response_format allow, refuse and force. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/rng.h"
#include "grammar/chat_grammar.h"
#include "grammar/state.h"
#include "json/json_tree.h"
#include "support/text_fixture.h"
#include "text/chat.h"
#include "text/parser.h"
#include "text/tokenizer.h"

#ifdef CARAT_HAVE_JSON

static struct token_index *index_of_vocab;

static int open_all(void **state)
{
    struct carat_error err;
    if (shared_vocab_open(state)) return 1;
    return index_open(&index_of_vocab, shared_vocab(), &err);
}

static int close_all(void **state)
{
    index_close(index_of_vocab);
    return shared_vocab_close(state);
}

/* ---- Random values that fit a schema ---------------------------------------------------- */

struct maker {
    struct rng rng;
    struct arena arena;
    const struct carat_value *root; /* what $ref begins at */
    int depth;
};

static uint32_t below(struct maker *m, uint32_t n)
{
    return (uint32_t)(rng_next(&m->rng) % n);
}

static struct carat_value make(struct maker *m, const struct carat_value *schema);

static struct carat_value text_of(struct maker *m, const char *text, size_t length)
{
    struct carat_value v = {.kind = CARAT_STRING};
    v.as.string.data = arena_copy_text(&m->arena, text, length);
    v.as.string.length = length;
    return v;
}

static int64_t whole(const struct carat_value *schema, const char *key, int64_t other)
{
    const struct carat_value *v = json_member(schema, key);
    return v->kind == CARAT_INT ? v->as.integer : other;
}

/* Pieces of one character each, and in between what looks like syntax. Without bounds also the
 * mark, spelled. */
static struct carat_value make_text(struct maker *m, const struct carat_value *schema)
{
    static const char *const pieces[] = {"a",
                                         "b",
                                         " ",
                                         "\"",
                                         "\\",
                                         "{",
                                         "}",
                                         ":",
                                         ",",
                                         "]",
                                         "<",
                                         "|",
                                         "\n",
                                         "\xC3\xA9",
                                         "\xE6\x97\xA5",
                                         "\xF0\x9F\x98\x80",
                                         "0",
                                         "\t",
                                         "'",
                                         "/",
                                         "<|\"|>"};
    int64_t least = whole(schema, "minLength", 0), most = whole(schema, "maxLength", least + 12);
    int64_t n = least + (int64_t)below(m, (uint32_t)(most - least + 1));
    bool has_bounds = json_member(schema, "maxLength")->kind != CARAT_NULL;
    uint32_t n_pieces = sizeof pieces / sizeof *pieces - has_bounds;
    struct buf text = {0};
    for (int64_t i = 0; i < n; i++) buf_add_text(&text, pieces[below(m, n_pieces)]);
    struct carat_value v = text_of(m, buf_text(&text), text.length);
    buf_deinit(&text);
    return v;
}

static struct carat_value make_integer(struct maker *m, const struct carat_value *schema)
{
    int64_t low = whole(schema, "minimum", whole(schema, "exclusiveMinimum", -1001) + 1);
    int64_t high = whole(schema, "maximum", whole(schema, "exclusiveMaximum", low + 2001) - 1);
    int64_t found = low + (int64_t)below(m, (uint32_t)(high - low + 1));
    return (struct carat_value){.kind = CARAT_INT, .as.integer = found};
}

static double real(const struct carat_value *schema, const char *key, double other)
{
    const struct carat_value *v = json_member(schema, key);
    return v->kind == CARAT_REAL  ? v->as.real
           : v->kind == CARAT_INT ? (double)v->as.integer
                                  : other;
}

static struct carat_value make_number(struct maker *m, const struct carat_value *schema)
{
    static const double reals[] = {0.5, -1.25, 3.0, 1e21, 1e-7, 123456.789, -2.5e-30, 7.0};
    double none = -1e6, low = real(schema, "minimum", real(schema, "exclusiveMinimum", none));
    double high = real(schema, "maximum", real(schema, "exclusiveMaximum", none));
    double found = reals[below(m, sizeof reals / sizeof *reals)];
    if (low > none || high > none) {
        if (high == none) high = low + 100;
        if (low == none) low = high - 100;
        found =
            floor(4 * low + (high - low) * (1 + below(m, 3))) / 4; /* two digits after the point */
        if (found < low) found += 0.25;
    }
    return (struct carat_value){.kind = CARAT_REAL, .as.real = found};
}

static struct carat_value make_array(struct maker *m, const struct carat_value *schema)
{
    const struct carat_value *first = json_member(schema, "prefixItems");
    const struct carat_value *items = json_member(schema, "items");
    int64_t n_first = first->kind == CARAT_ARRAY ? (int64_t)first->as.array.count : 0;
    bool is_closed = items->kind == CARAT_BOOL && !items->as.boolean;
    int64_t least = whole(schema, "minItems", 0);
    int64_t most = whole(schema, "maxItems", is_closed ? n_first : least + 3);
    if (m->depth > 6) most = least;
    int64_t n = least + (int64_t)below(m, (uint32_t)(most - least + 1));
    struct carat_value *all = arena_take(&m->arena, (size_t)n, sizeof *all);
    for (int64_t i = 0; i < n; i++)
        all[i] = make(m, i < n_first ? &first->as.array.items[i] : items);
    struct carat_value v = {.kind = CARAT_ARRAY};
    v.as.array.items = all;
    v.as.array.count = (size_t)n;
    return v;
}

static bool is_required(const struct carat_value *schema, const struct carat_member *member)
{
    const struct carat_value *names = json_member(schema, "required");
    for (size_t i = 0; names->kind == CARAT_ARRAY && i < names->as.array.count; i++) {
        const struct carat_value *name = &names->as.array.items[i];
        if (name->as.string.length == member->key.length &&
            memcmp(name->as.string.data, member->key.data, member->key.length) == 0)
            return true;
    }
    return false;
}

/* Members with a value each; further ones only where none is named. */
static struct carat_value make_object(struct maker *m, const struct carat_value *schema)
{
    static const char *const names[] = {"k", "key_two", "K3", "z-9"};
    const struct carat_value *own = json_member(schema, "properties");
    const struct carat_value *more = json_member(schema, "additionalProperties");
    size_t n_own = own->kind == CARAT_OBJECT ? own->as.object.count : 0, n = 0;
    struct carat_member *members = arena_take(&m->arena, n_own + 4, sizeof *members);
    for (size_t i = 0; i < n_own; i++) {
        const struct carat_member *named = &own->as.object.members[i];
        bool is_left_out = m->depth > 6 || below(m, 2) == 0;
        if (is_left_out && !is_required(schema, named)) continue;
        members[n].key = named->key;
        members[n++].value = make(m, &named->value);
    }
    for (size_t i = 0; n_own == 0 && more->kind == CARAT_OBJECT && i < 4; i++) {
        if (below(m, 2)) continue;
        members[n].key.data = names[i];
        members[n].key.length = strlen(names[i]);
        members[n++].value = make(m, more);
    }
    struct carat_value v = {.kind = CARAT_OBJECT};
    v.as.object.members = members;
    v.as.object.count = n;
    return v;
}

/* "#", "#/$defs/x" */
static const struct carat_value *find_ref(struct maker *m, const struct carat_value *ref)
{
    const struct carat_value *at = m->root;
    char path[128];
    snprintf(path, sizeof path, "%.*s", (int)ref->as.string.length, ref->as.string.data);
    char *rest = path;
    strtok_r(path, "/", &rest);
    for (char *key = strtok_r(NULL, "/", &rest); key; key = strtok_r(NULL, "/", &rest))
        at = json_member(at, key);
    return at;
}

static struct carat_value make_of_type(struct maker *m, const struct carat_value *type,
                                       const struct carat_value *schema)
{
    if (json_text_is(type, "object")) return make_object(m, schema);
    if (json_text_is(type, "array")) return make_array(m, schema);
    if (json_text_is(type, "string")) return make_text(m, schema);
    if (json_text_is(type, "integer")) return make_integer(m, schema);
    if (json_text_is(type, "number")) return make_number(m, schema);
    if (json_text_is(type, "boolean"))
        return (struct carat_value){.kind = CARAT_BOOL, .as.boolean = below(m, 2)};
    return (struct carat_value){.kind = CARAT_NULL};
}

static struct carat_value make_of(struct maker *m, const struct carat_value *schema)
{
    static const char *const lists[] = {"enum", "anyOf", "oneOf", "allOf"};
    const struct carat_value *type = json_member(schema, "type");
    const struct carat_value *constant = json_member(schema, "const");
    const struct carat_value *ref = json_member(schema, "$ref");
    if (constant->kind != CARAT_NULL) return *constant;
    if (ref->kind == CARAT_STRING) return make(m, find_ref(m, ref));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct carat_value *list = json_member(schema, lists[i]);
        if (list->kind != CARAT_ARRAY) continue;
        size_t count = list->as.array.count;
        /* Deep down only what does not go on: the first, or null at the end. */
        size_t at = m->depth <= 6 ? below(m, (uint32_t)count)
                    : json_text_is(json_member(&list->as.array.items[count - 1], "type"), "null")
                        ? count - 1
                        : 0;
        return i == 0 ? list->as.array.items[at] : make(m, &list->as.array.items[at]);
    }
    if (type->kind == CARAT_ARRAY)
        return make_of_type(m, &type->as.array.items[below(m, (uint32_t)type->as.array.count)],
                            schema);
    if (type->kind == CARAT_NULL) return make_text(m, schema); /* anything fits */
    return make_of_type(m, type, schema);
}

static struct carat_value make(struct maker *m, const struct carat_value *schema)
{
    m->depth++;
    struct carat_value v = make_of(m, schema);
    m->depth--;
    return v;
}

/* ---- Comparing -------------------------------------------------------------------------- */

static bool equal(const struct carat_value *a, const struct carat_value *b);

/* Orders may differ: the template sorts keys. */
static bool equal_objects(const struct carat_value *a, const struct carat_value *b)
{
    if (a->as.object.count != b->as.object.count) return false;
    for (size_t i = 0; i < a->as.object.count; i++) {
        const struct carat_member *m = &a->as.object.members[i];
        char key[256];
        snprintf(key, sizeof key, "%.*s", (int)m->key.length, m->key.data);
        if (!equal(&m->value, json_member(b, key))) return false;
    }
    return true;
}

static bool equal(const struct carat_value *a, const struct carat_value *b)
{
    bool is_number = (a->kind == CARAT_INT || a->kind == CARAT_REAL) &&
                     (b->kind == CARAT_INT || b->kind == CARAT_REAL);
    if (is_number) {
        double x = a->kind == CARAT_INT ? (double)a->as.integer : a->as.real;
        double y = b->kind == CARAT_INT ? (double)b->as.integer : b->as.real;
        return x == y;
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case CARAT_BOOL: return a->as.boolean == b->as.boolean;
    case CARAT_STRING:
        return a->as.string.length == b->as.string.length &&
               memcmp(a->as.string.data, b->as.string.data, a->as.string.length) == 0;
    case CARAT_ARRAY:
        if (a->as.array.count != b->as.array.count) return false;
        for (size_t i = 0; i < a->as.array.count; i++)
            if (!equal(&a->as.array.items[i], &b->as.array.items[i])) return false;
        return true;
    case CARAT_OBJECT: return equal_objects(a, b);
    case CARAT_NULL:
    case CARAT_INT:
    case CARAT_REAL: break;
    }
    return true;
}

/* ---- Trees by hand ---------------------------------------------------------------------- */

static struct carat_value string_value(const char *text)
{
    struct carat_value v = {.kind = CARAT_STRING};
    v.as.string.data = text;
    v.as.string.length = strlen(text);
    return v;
}

static struct carat_value object_of(struct arena *arena, size_t n, const char *const *keys,
                                    const struct carat_value *values)
{
    struct carat_member *members = arena_take(arena, n, sizeof *members);
    for (size_t i = 0; i < n; i++) {
        members[i].key.data = keys[i];
        members[i].key.length = strlen(keys[i]);
        members[i].value = values[i];
    }
    struct carat_value v = {.kind = CARAT_OBJECT};
    v.as.object.members = members;
    v.as.object.count = n;
    return v;
}

static struct carat_value array_of(struct arena *arena, size_t n, const struct carat_value *values)
{
    struct carat_value *items = arena_take(arena, n, sizeof *items);
    memcpy(items, values, n * sizeof *items);
    struct carat_value v = {.kind = CARAT_ARRAY};
    v.as.array.items = items;
    v.as.array.count = n;
    return v;
}

static struct carat_value function_of(struct arena *arena, const char *key,
                                      const struct carat_value *value)
{
    const char *const names[] = {"name", key}, *const outer[] = {"type", "function"};
    struct carat_value inner[] = {string_value("do_it"), *value};
    struct carat_value function = object_of(arena, 2, names, inner);
    struct carat_value values[] = {string_value("function"), function};
    return object_of(arena, 2, outer, values);
}

/* ---- Round trips ------------------------------------------------------------------------ */

/* The ids of the call, as the chat template writes it. */
static size_t render_call(struct arena *arena, const struct carat_value *arguments, int32_t **ids,
                          size_t *begin)
{
    const char *const keys[] = {"role", "content"}, *const calls_keys[] = {"role", "tool_calls"},
                      *const top[] = {"messages"};
    struct carat_value call = function_of(arena, "arguments", arguments);
    struct carat_value asked[] = {string_value("user"), string_value("go")};
    struct carat_value answered[] = {string_value("assistant"), array_of(arena, 1, &call)};
    struct carat_value both[] = {object_of(arena, 2, keys, asked),
                                 object_of(arena, 2, calls_keys, answered)};
    struct carat_value messages = array_of(arena, 2, both);
    struct carat_value request = object_of(arena, 1, top, &messages);
    struct carat_error err;
    size_t n;
    const struct vocab *v = shared_vocab();
    if (chat_tokenize(v, CARAT_SIZE_SMALL, &request, 1 << 20, ids, &n, &err))
        fail_msg("%s", err.message);
    for (*begin = 0; (*ids)[*begin] != vocab_special(v, VOCAB_CALL_BEGIN);) ++*begin;
    size_t end = *begin;
    while ((*ids)[end] != vocab_special(v, VOCAB_CALL_END)) end++;
    return end + 1 - *begin;
}

static void expect_parsed(const char *name, const int32_t *ids, size_t n,
                          const struct carat_value *arguments)
{
    struct carat_parser *p;
    struct carat_error err;
    const struct carat_part *parts;
    size_t n_parts;
    struct json_tree tree;
    assert_int_equal(parser_open(&p, shared_vocab(), NULL, 0, &err), CARAT_OK);
    assert_int_equal(parser_push(p, ids, n, &parts, &n_parts, &err), CARAT_OK);
    assert_int_equal(n_parts, 1);
    assert_int_equal(parts[0].kind, CARAT_PART_TOOL_CALL);
    assert_string_equal(parts[0].name, "do_it");
    if (!parts[0].is_complete)
        fail_msg("%s: repaired: %.*s", name, (int)parts[0].length, parts[0].text);
    assert_int_equal(json_tree_read(&tree, parts[0].text, parts[0].length, JSON_PLAIN, &err),
                     CARAT_OK);
    if (!equal(arguments, &tree.root))
        fail_msg("%s: other arguments: %.*s", name, (int)parts[0].length, parts[0].text);
    json_tree_free(&tree);
    parser_close(p);
}

static void expect_allowed(const char *name, const carat_grammar *g, const int32_t *ids, size_t n)
{
    struct grammar_state *s;
    struct carat_error err;
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    for (size_t i = 0; i < n; i++) {
        if (!grammar_state_allows(s, ids[i])) {
            struct buf text = {0};
            for (size_t k = 0; k < n; k++) {
                if (k == i) buf_add_text(&text, " >>> ");
                tokenizer_decode_one(shared_vocab(), ids[k], true, &text);
            }
            fail_msg("%s: id %zu of %zu is refused: %s", name, i, n, buf_text(&text));
        }
        grammar_state_accept(s, ids[i]);
    }
    if (!grammar_state_is_complete(s)) fail_msg("%s: not complete", name);
    grammar_state_close(s);
}

/* A schema of parameters: an object, or a member of one. */
static struct carat_value as_parameters(struct arena *arena, const struct carat_value *schema)
{
    const char *const keys[] = {"type", "properties", "required", "$defs", "definitions"};
    const char *const inner[] = {"v"};
    if (json_text_is(json_member(schema, "type"), "object")) return *schema;
    struct carat_value name = string_value("v");
    struct carat_value values[] = {string_value("object"), object_of(arena, 1, inner, schema),
                                   array_of(arena, 1, &name), *json_member(schema, "$defs"),
                                   *json_member(schema, "definitions")};
    size_t n = values[4].kind != CARAT_NULL ? 5 : values[3].kind != CARAT_NULL ? 4 : 3;
    if (n == 5 && values[3].kind == CARAT_NULL) values[3] = object_of(arena, 0, NULL, NULL);
    return object_of(arena, n, keys, values);
}

static int open_required(carat_grammar **out, struct arena *arena,
                         const struct carat_value *parameters, struct carat_error *err)
{
    const char *const keys[] = {"tools", "tool_choice"};
    struct carat_value tool = function_of(arena, "parameters", parameters);
    struct carat_value values[] = {array_of(arena, 1, &tool), string_value("required")};
    struct carat_value request = object_of(arena, 2, keys, values);
    return chat_grammar_open(out, shared_vocab(), index_of_vocab, &request, err);
}

static bool has_key_below(const struct carat_value *value, const char *const *keys)
{
    if (value->kind == CARAT_ARRAY)
        for (size_t i = 0; i < value->as.array.count; i++)
            if (has_key_below(&value->as.array.items[i], keys)) return true;
    for (size_t i = 0; value->kind == CARAT_OBJECT && i < value->as.object.count; i++) {
        const struct carat_member *m = &value->as.object.members[i];
        for (const char *const *key = keys; *key; key++)
            if (strlen(*key) == m->key.length && memcmp(*key, m->key.data, m->key.length) == 0)
                return true;
        if (has_key_below(&m->value, keys)) return true;
    }
    return false;
}

static void read_schemas(struct json_tree *tree)
{
    struct buf text = {0};
    struct carat_error err;
    FILE *f = fopen(CARAT_SOURCE_DIR "/tests/golden/schemas.json", "r");
    assert_non_null(f);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) buf_add(&text, block, n);
    fclose(f);
    assert_int_equal(json_tree_read(tree, buf_text(&text), text.length, JSON_PLAIN, &err),
                     CARAT_OK);
    buf_deinit(&text);
}

static void arguments_come_back_as_they_were(void **state)
{
    (void)state;
    enum { TRIALS = 40, SEED = 71 };
    static const char *const unmakeable[] = {
        "pattern", "format", "patternProperties", "allOf", "nullable", "c\"d", NULL};
    struct json_tree schemas;
    size_t n_schemas = 0, n_ids = 0;
    read_schemas(&schemas);
    for (size_t i = 0; i < schemas.root.as.array.count; i++) {
        const struct carat_value *entry = &schemas.root.as.array.items[i];
        const char *name = json_member(entry, "name")->as.string.data;
        const struct carat_value *schema = json_member(entry, "schema");
        bool is_joined = json_text_is(json_member(schema, "type"), "object") &&
                         json_member(schema, "anyOf")->kind != CARAT_NULL;
        if (is_joined || has_key_below(schema, unmakeable)) continue;
        struct maker m = {0};
        struct carat_error err;
        carat_grammar *g = NULL;
        m.rng = (struct rng){SEED + i};
        struct carat_value parameters = as_parameters(&m.arena, schema);
        m.root = &parameters;
        if (open_required(&g, &m.arena, &parameters, &err)) fail_msg("%s: %s", name, err.message);
        for (int trial = 0; trial < TRIALS; trial++) {
            struct carat_value arguments = make(&m, &parameters);
            int32_t *ids;
            size_t begin, n = render_call(&m.arena, &arguments, &ids, &begin);
            expect_allowed(name, g, ids + begin, n);
            expect_parsed(name, ids + begin, n, &arguments);
            n_ids += n;
            mem_free(ids);
        }
        grammar_close(g);
        arena_deinit(&m.arena);
        n_schemas++;
    }
    print_message("seed %d: %zu schemas, %d calls each, %zu ids\n", SEED, n_schemas, TRIALS, n_ids);
    assert_true(n_schemas >= 60);
    json_tree_free(&schemas);
}

/* An allowed id: any, and later on one that ends something. -1: none is. */
static int32_t choose(struct grammar_state *s, struct rng *r, int step, uint64_t *mask)
{
    enum { SOON = 30 };
    const struct vocab *v = shared_vocab();
    const int32_t ends[] = {vocab_special(v, VOCAB_CALL_END), vocab_special(v, VOCAB_QUOTE),
                            vocab_find(v, "}", 1), vocab_find(v, "]", 1)};
    for (size_t i = 0; step > SOON && i < sizeof ends / sizeof *ends; i++)
        if (ends[i] >= 0 && grammar_state_allows(s, ends[i])) return ends[i];
    grammar_state_mask(s, mask);
    int32_t n = vocab_count(v), from = (int32_t)rng_below(r, (uint32_t)n);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (from + i) % n;
        if (mask[id / 64] >> (id % 64) & 1) return id;
    }
    return -1;
}

/* Walks to the end of a call; whether it came. */
static bool walk(const char *name, const carat_grammar *g, struct rng *r)
{
    enum { STEPS_MAX = 400 };
    struct grammar_state *s;
    struct carat_error err;
    int32_t ids[STEPS_MAX];
    uint64_t mask[64];
    int n = 0;
    assert_true(vocab_count(shared_vocab()) <= 64 * 64);
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    while (n < STEPS_MAX && !grammar_state_is_complete(s)) {
        ids[n] = choose(s, r, n, mask);
        if (ids[n] < 0) fail_msg("%s: nothing is allowed after %d ids", name, n);
        grammar_state_accept(s, ids[n++]);
    }
    bool is_whole = grammar_state_is_complete(s);
    grammar_state_close(s);
    if (!is_whole) return false;
    struct json_tree arguments;
    struct carat_parser *p;
    const struct carat_part *parts;
    size_t n_parts;
    assert_int_equal(parser_open(&p, shared_vocab(), NULL, 0, &err), CARAT_OK);
    assert_int_equal(parser_push(p, ids, (size_t)n, &parts, &n_parts, &err), CARAT_OK);
    const struct carat_part *call = parts + n_parts - 1; /* a thought may stand before it */
    if (n_parts == 0 || call->kind != CARAT_PART_TOOL_CALL || !call->is_complete) {
        struct buf text = {0};
        for (int i = 0; i < n; i++) tokenizer_decode_one(shared_vocab(), ids[i], true, &text);
        fail_msg("%s: repaired: %s", name, buf_text(&text));
    }
    if (json_tree_read(&arguments, call->text, call->length, JSON_PLAIN, &err))
        fail_msg("%s: %s: %.*s", name, err.message, (int)call->length, call->text);
    assert_int_equal(arguments.root.kind, CARAT_OBJECT);
    json_tree_free(&arguments);
    parser_close(p);
    return true;
}

static void whatever_is_allowed_needs_no_repair(void **state)
{
    (void)state;
    enum { WALKS = 12, SEED = 5 };
    struct json_tree schemas;
    int n_walks = 0, n_whole = 0;
    read_schemas(&schemas);
    for (size_t i = 0; i < schemas.root.as.array.count; i++) {
        const struct carat_value *entry = &schemas.root.as.array.items[i];
        const char *name = json_member(entry, "name")->as.string.data;
        struct arena arena = {0};
        struct rng r = {SEED + i};
        struct carat_error err;
        carat_grammar *g = NULL;
        struct carat_value parameters = as_parameters(&arena, json_member(entry, "schema"));
        if (open_required(&g, &arena, &parameters, &err)) fail_msg("%s: %s", name, err.message);
        for (int k = 0; k < WALKS; k++) n_whole += walk(name, g, &r);
        n_walks += WALKS;
        grammar_close(g);
        arena_deinit(&arena);
    }
    print_message("seed %d: %d of %d walks ended\n", SEED, n_whole, n_walks);
    assert_true(n_whole * 10 >= n_walks * 8);
    json_tree_free(&schemas);
}

/* ---- Choices ---------------------------------------------------------------------------- */

#define TOOLS                                                                                      \
    "'tools':[{'type':'function','function':{'name':'now','parameters':{'type':'object',"          \
    "'properties':{'zone':{'type':'string'},'at':{'type':'integer'}},'required':['zone']}}},"      \
    "{'type':'function','function':{'name':'stop'}}]"
#define INTEGER "{'type':'integer'}"
#define KEYS                                                                                       \
    "'tools':[{'function':{'name':'f','parameters':{'type':'object','properties':{'\xc3\x84"       \
    "b':" INTEGER ",'\xc3\xa4"                                                                     \
    "a':" INTEGER ",'b':" INTEGER ",'B':" INTEGER "},'required':['\xc3\x84"                        \
    "b','\xc3\xa4"                                                                                 \
    "a','b','B']}}}]"
#define NOW "<|tool_call>call:now{zone:<|\"|>UTC<|\"|>}<tool_call|>"
#define STOP "<|tool_call>call:stop{}<tool_call|>"
#define JSON_FORMAT "'response_format':{'type':'json_object'}"
#define ON "'enable_thinking':true,"
#define OPEN_THOUGHT "<|channel>thought\nabc"
#define THOUGHT "<|channel>thought\nabc x<channel|>"

enum outcome {
    REFUSED, /* an id is not allowed */
    PARTIAL, /* allowed, and more has to come */
    WHOLE,   /* allowed, and may end here */
    CLOSED,  /* may end here, and nothing else may come */
};

/* Apostrophes stand for quotes. */
static void read_request(const char *request, struct json_tree *tree)
{
    struct buf text = {0};
    struct carat_error err;
    for (const char *c = request; *c; c++) buf_add_char(&text, *c == '\'' ? '"' : *c);
    if (json_tree_read(tree, buf_text(&text), text.length, JSON_PLAIN, &err))
        fail_msg("%s: %s", request, err.message);
    buf_deinit(&text);
}

static int open_chat(const char *request, carat_grammar **g, struct carat_error *err)
{
    struct json_tree tree;
    read_request(request, &tree);
    int status = chat_grammar_open(g, shared_vocab(), index_of_vocab, &tree.root, err);
    json_tree_free(&tree);
    return status;
}

/* Whether only stop ids may come. */
static bool is_closed(struct grammar_state *s)
{
    const struct vocab *v = shared_vocab();
    for (int32_t id = 0; id < vocab_count(v); id++)
        if (!vocab_is_stop(v, id) && grammar_state_allows(s, id)) return false;
    return true;
}

/* Every bit of the mask says what the check says. */
static void check_mask(struct grammar_state *s)
{
    uint64_t mask[64];
    grammar_state_mask(s, mask);
    for (int32_t id = 0; id < vocab_count(shared_vocab()); id++)
        assert_int_equal(mask[id / 64] >> (id % 64) & 1, grammar_state_allows(s, id));
}

static enum outcome outcome_of(const char *request, const char *answer)
{
    carat_grammar *g = NULL;
    struct grammar_state *s;
    struct carat_error err;
    int32_t *ids;
    size_t n, i = 0;
    if (open_chat(request, &g, &err)) fail_msg("%s: %s", request, err.message);
    if (!g) return WHOLE;
    assert_int_equal(tokenizer_encode(shared_vocab(), answer, strlen(answer), CARAT_SPECIAL_ALL,
                                      false, &ids, &n, &err),
                     CARAT_OK);
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    for (; i < n && grammar_state_allows(s, ids[i]); i++) {
        check_mask(s);
        grammar_state_accept(s, ids[i]);
    }
    check_mask(s);
    enum outcome outcome = i < n                           ? REFUSED
                           : !grammar_state_is_complete(s) ? PARTIAL
                           : is_closed(s)                  ? CLOSED
                                                           : WHOLE;
    mem_free(ids);
    grammar_state_close(s);
    grammar_close(g);
    return outcome;
}

static const struct {
    const char *request, *answer;
    enum outcome outcome;
} choices[] = {
    {"{}", "any text " NOW, WHOLE},
    {"{'tools':[]}", "text", WHOLE},
    {"{'tool_choice':'none'}", "text", WHOLE},
    /* Keys come in the order of the prompt: by their letters, whatever the case, then by place. */
    {"{" KEYS "}",
     "<|tool_call>call:f{\xc3\xa4"
     "a:1,b:2,B:3,\xc3\x84"
     "b:4",
     REFUSED},
    {"{" KEYS "}",
     "<|tool_call>call:f{b:2,B:3,\xc3\xa4"
     "a:1,\xc3\x84"
     "b:4}<tool_call|>",
     WHOLE},
    /* auto */
    {"{" TOOLS "}", "free text", WHOLE},
    {"{" ON TOOLS "}", THOUGHT "free", WHOLE},
    {"{" TOOLS "}", "text first " NOW, WHOLE},
    {"{" TOOLS "}", NOW STOP "text between" NOW, WHOLE},
    {"{" TOOLS "}", "<|tool_call>", PARTIAL},
    {"{" TOOLS "}", "<|tool_call>call:nobody{", REFUSED},
    {"{" TOOLS "}", "<|tool_call>now", REFUSED},
    {"{" TOOLS "}", "<|tool_call>call:now{}", REFUSED},
    {"{" TOOLS "}", "<|tool_call>call:now{zone:3}", REFUSED},
    {"{" TOOLS "}", "<|tool_call>call:now{zone:<|\"|>a<|\"|>,at:1.5}", REFUSED},
    {"{" TOOLS "}", "<|tool_call>call:stop{a:1}", REFUSED},
    {"{" TOOLS "}", "<|tool_call>call:now{at:5,zone:<|\"|>a, {b}<|\"|>}<tool_call|>", WHOLE},
    {"{" TOOLS ",'tool_choice':'auto'}", NOW, WHOLE},
    {"{" TOOLS ",'tool_choice':'required'}", "<|channel>", REFUSED},
    {"{" JSON_FORMAT "}", "<|channel>", REFUSED},
    {"{'enable_thinking':false," JSON_FORMAT "}", "<|channel>", REFUSED},
    /* a call ends a thought, and is held to its form there too */
    {"{" ON TOOLS "}", OPEN_THOUGHT "<|tool_call>call:now{zone:3", REFUSED},
    {"{" ON TOOLS "}", OPEN_THOUGHT NOW "text", WHOLE},
    {"{" ON TOOLS ",'tool_choice':'required'}", OPEN_THOUGHT NOW STOP, WHOLE},
    {"{" ON TOOLS ",'tool_choice':'required'}", OPEN_THOUGHT, PARTIAL},
    {"{" ON TOOLS ",'tool_choice':'none'}", OPEN_THOUGHT "<|tool_call>", REFUSED},
    {"{" ON TOOLS ",'parallel_tool_calls':false}", OPEN_THOUGHT NOW, CLOSED},
    {"{" ON JSON_FORMAT "}", OPEN_THOUGHT "<|tool_call>", REFUSED},
    {"{" ON TOOLS "," JSON_FORMAT "}", OPEN_THOUGHT STOP, WHOLE},
    /* one call at most */
    {"{" TOOLS ",'parallel_tool_calls':false}", "text", WHOLE},
    {"{" ON TOOLS ",'parallel_tool_calls':false}", THOUGHT "text " NOW, CLOSED},
    {"{" TOOLS ",'parallel_tool_calls':true}", NOW NOW, WHOLE},
    /* required */
    {"{" TOOLS ",'tool_choice':'required'}", "", PARTIAL},
    {"{" TOOLS ",'tool_choice':'required'}", "text", REFUSED},
    {"{" ON TOOLS ",'tool_choice':'required'}", THOUGHT NOW, WHOLE},
    {"{" TOOLS ",'tool_choice':'required'}", NOW STOP, WHOLE},
    {"{" TOOLS ",'tool_choice':'required'}", NOW "text", REFUSED},
    {"{" TOOLS ",'tool_choice':'required','parallel_tool_calls':false}", STOP, CLOSED},
    /* named */
    {"{" TOOLS ",'tool_choice':{'type':'function','function':{'name':'stop'}}}", STOP, CLOSED},
    {"{" TOOLS ",'tool_choice':{'type':'function','function':{'name':'stop'}}}", NOW, REFUSED},
    {"{" ON TOOLS ",'tool_choice':{'type':'function','function':{'name':'now'}}}", THOUGHT NOW,
     CLOSED},
    /* none */
    {"{" TOOLS ",'tool_choice':'none'}", "free text", WHOLE},
    {"{" TOOLS ",'tool_choice':'none'}", "text <|tool_call>", REFUSED},
    /* text of a form */
    {"{" JSON_FORMAT "}", "{\"a\": [1, null]}", CLOSED},
    {"{" ON JSON_FORMAT "}", THOUGHT "{}", CLOSED},
    {"{" JSON_FORMAT "}", "text", REFUSED},
    {"{'response_format':{'type':'text'}}", "text", WHOLE},
    {"{'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':"
     "{'enum':['yes','no']}}}}",
     "\"yes\"", CLOSED},
    {"{'response_format':{'type':'json_schema','json_schema':{'schema':{'type':'integer'}}}}",
     "true", REFUSED},
    {"{'json_schema':{'type':'integer'}}", "12", WHOLE},
    {"{'grammar':'root ::= (\\'a\\' | \\'b\\')+'}", "abba", WHOLE},
    /* both */
    {"{" TOOLS "," JSON_FORMAT "}", "{\"a\":1}", CLOSED},
    {"{" ON TOOLS "," JSON_FORMAT "}", THOUGHT NOW NOW, WHOLE},
    {"{" TOOLS "," JSON_FORMAT "}", "text", REFUSED},
    {"{" TOOLS "," JSON_FORMAT ",'tool_choice':'required'}", "{\"a\":1}", REFUSED},
    {"{" TOOLS "," JSON_FORMAT ",'tool_choice':'none'}", NOW, REFUSED},
    {"{" TOOLS "," JSON_FORMAT ",'tool_choice':'none'}", "{}", CLOSED},
};

static void choices_allow_ban_and_force(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        char request[1024];
        snprintf(request, sizeof request, "%s", choices[i].request);
        enum outcome found = outcome_of(request, choices[i].answer);
        if (found != choices[i].outcome)
            fail_msg("%s: \"%s\": %d found, %d expected", choices[i].request, choices[i].answer,
                     found, choices[i].outcome);
    }
}

static void what_cannot_be_kept_is_refused(void **state)
{
    (void)state;
#define TOOL(members) "{'tools':[{'function':{'name':'f'," members "}}]}"
    static const struct {
        const char *request, *words;
        int status;
    } cases[] = {
        {"{'tools':{}}", "tools: an array expected", CARAT_EUSAGE},
        {"{'tools':[3]}", "tools[0].function: an object expected", CARAT_EUSAGE},
        {"{'tools':[{'function':{}}]}", "tools[0].function: name: a string expected", CARAT_EUSAGE},
        {"{'tools':[{'function':{'name':'a{b'}}]}", "cannot be called", CARAT_EUSAGE},
        {"{'tools':[{'function':{'name':''}}]}", "cannot be called", CARAT_EUSAGE},
        {"{'tool_choice':'required'}", "tool_choice", CARAT_EUSAGE},
        {"{" TOOLS ",'tool_choice':'any'}", "tool_choice", CARAT_EUSAGE},
        {"{" TOOLS ",'tool_choice':{'type':'custom'}}", "tool_choice.type", CARAT_EUSAGE},
        {"{" TOOLS ",'tool_choice':{'type':'function','function':{'name':'x'}}}",
         "there is no tool \"x\"", CARAT_EUSAGE},
        {"{" TOOLS ",'parallel_tool_calls':3}", "parallel_tool_calls: a boolean", CARAT_EUSAGE},
        {TOOL("'parameters':3"), "parameters: an object expected", CARAT_EUSAGE},
        {TOOL("'parameters':{'type':'array'}"), "parameters.type", CARAT_EUSAGE},
        {TOOL("'parameters':{'properties':{'a':{'type':'king'}}}"), "tools[0].function: parameters",
         CARAT_EUSAGE},
        {TOOL("'strict':true,'parameters':{'properties':{'a':{'not':{}}}}"), "not",
         CARAT_EUNSUPPORTED},
        {TOOL("'strict':true,'parameters':{'properties':{'a:b':{}}}"), "a:b", CARAT_EUNSUPPORTED},
        {TOOL("'strict':true,'parameters':{'properties':{'a':{'enum':[]}},'required':['a']}"),
         "tools[0].function: parameters: nothing fits this schema", CARAT_EUNSUPPORTED},
        {TOOL("'strict':true,'parameters':{'properties':{'a':false},'required':['a']}"),
         "tools[0].function: parameters: json schema: #/properties/a: ", CARAT_EUNSUPPORTED},
        {"{'json_schema':{'enum':[]}}", "json_schema: the grammar matches no text", CARAT_EUSAGE},
        {"{'response_format':{'type':'json_schema','json_schema':{'schema':{'enum':[]}}}}",
         "response_format.json_schema.schema: the grammar matches no text", CARAT_EUSAGE},
        {"{'response_format':3}", "response_format: an object expected", CARAT_EUSAGE},
        {"{'response_format':{'type':'xml'}}", "response_format.type", CARAT_EUSAGE},
        {"{'response_format':{'type':'json_schema'}}", "response_format.json_schema.schema",
         CARAT_EUSAGE},
        {"{'response_format':{'type':'json_schema','json_schema':{'schema':{'not':{}}}}}",
         "response_format.json_schema.schema", CARAT_EUNSUPPORTED},
        {"{'grammar':3}", "grammar: a string", CARAT_EUSAGE},
        {"{'grammar':'root ::= ('}", "grammar: ", CARAT_EUSAGE},
        {"{'grammar':'root ::= [a]','json_schema':{}}", "2 found", CARAT_EUSAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        carat_grammar *g = NULL;
        struct carat_error err = {0};
        long before = mem_blocks_live();
        int status = open_chat(cases[i].request, &g, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].words) || g)
            fail_msg("%s: status %d, \"%s\"; %d, \"%s\" expected", cases[i].request, status,
                     err.message, cases[i].status, cases[i].words);
        assert_int_equal(mem_blocks_live(), before);
    }
}

/* What is not strict and cannot be kept takes any arguments, but the call keeps its form. */
static void a_loose_tool_takes_any_arguments(void **state)
{
    static const char *const schemas[] = {
        "'a':{'not':{}}",           /* a keyword */
        "'a':{'pattern':'(?=a)b'}", /* an expression */
        "'a':false",                /* fits nothing */
        "'a':{'enum':[]}",
        "'a':{'type':'integer','minimum':5,'maximum':3}",
        "'a':{'type':'string','minLength':5,'maxLength':3}",
        "'a':{'type':'string','minLength':100000000}", /* too large */
        "'a':{'$ref':'#/properties/a'}",               /* endless */
    };
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 TOOL("'parameters':{'type':'object','properties':{%s},'required':['a']}"),
                 schemas[i]);
        enum outcome any =
            outcome_of(request, "<|tool_call>call:f{a:1,b:[{c:<|\"|>x<|\"|>}]}<tool_call|>");
        if (any != WHOLE) fail_msg("%s: %d", schemas[i], any);
        assert_int_equal(outcome_of(request, "<|tool_call>call:f[]"), REFUSED);
    }
}

/* Only those that cannot be kept are loose. */
static void tools_beside_a_loose_one_keep_their_schemas(void **state)
{
    const char *request =
        "{'tools':[{'function':{'name':'f','parameters':{'properties':{'a':{'enum':[]}},"
        "'required':['a']}}},{'function':{'name':'g','parameters':{'properties':{'a':"
        "{'type':'boolean'}},'required':['a']}}}]}";
    (void)state;
    assert_int_equal(outcome_of(request, "<|tool_call>call:f{b:7}<tool_call|>"), WHOLE);
    assert_int_equal(outcome_of(request, "<|tool_call>call:g{a:true}<tool_call|>"), WHOLE);
    assert_int_equal(outcome_of(request, "<|tool_call>call:g{a:7"), REFUSED);
}

/* Each could be kept alone, but not all of them: then none is, unless it is strict. */
static void tools_that_are_too_large_together_are_loose(void **state)
{
    struct buf request = {0};
    (void)state;
    buf_add_text(&request, "{'tools':[{'function':{'name':'s','strict':true,'parameters':{"
                           "'properties':{'a':{'type':'boolean'}},'required':['a']}}}");
    for (int i = 0; i < 60; i++) {
        buf_printf(&request, ",{'function':{'name':'f%d','parameters':{'properties':{", i);
        for (int k = 0; k < 1000; k++) buf_printf(&request, "%s'k%d':{}", k ? "," : "", k);
        buf_add_text(&request, "}}}}");
    }
    buf_add_text(&request, "]}");
    char *text = request.data;
    assert_int_equal(outcome_of(text, "<|tool_call>call:f7{b:7}<tool_call|>"), WHOLE);
    assert_int_equal(outcome_of(text, "<|tool_call>call:s{a:true}<tool_call|>"), WHOLE);
    assert_int_equal(outcome_of(text, "<|tool_call>call:s{b:7"), REFUSED);
    buf_deinit(&request);
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    struct json_tree request;
    read_request("{" TOOLS "," JSON_FORMAT "}", &request);
    for (long n = 0; n < 4000; n++) {
        carat_grammar *g = NULL;
        struct carat_error err;
        long before = mem_blocks_live();
        mem_fail_after(n);
        int status = chat_grammar_open(&g, shared_vocab(), index_of_vocab, &request.root, &err);
        bool has_failed = mem_fail_after(-1);
        if (status == CARAT_OK) grammar_close(g);
        assert_int_equal(mem_blocks_live(), before);
        if (!has_failed) {
            json_tree_free(&request);
            return;
        }
        if (status != CARAT_EMEMORY) fail_msg("allocation %ld: %d: %s", n, status, err.message);
    }
    fail_msg("memory never sufficed");
}

/* The public functions, on a model file. */
static void a_model_gives_grammars(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int status;
        bool has_grammar;
    } cases[] = {
        {"{}", CARAT_OK, false},
        {"{\"response_format\":{\"type\":\"json_object\"}}", CARAT_OK, true},
        {"{\"tools\":[{\"function\":{\"name\":\"f\"}}]}", CARAT_OK, true},
        {"{\"tools\":3}", CARAT_EUSAGE, false},
        {"{", CARAT_EUSAGE, false},
    };
    carat_model *model;
    struct carat_error err;
    if (carat_model_open(&model, CARAT_SOURCE_DIR "/tests/golden/fixtures/e2b-q8_0.gguf", &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        carat_grammar *g;
        int status =
            carat_grammar_open_chat_json(&g, model, cases[i].json, strlen(cases[i].json), &err);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(g != NULL, cases[i].has_grammar);
        carat_grammar_close(g);
    }
    carat_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_come_back_as_they_were),
        cmocka_unit_test(whatever_is_allowed_needs_no_repair),
        cmocka_unit_test(choices_allow_ban_and_force),
        cmocka_unit_test(what_cannot_be_kept_is_refused),
        cmocka_unit_test(a_loose_tool_takes_any_arguments),
        cmocka_unit_test(tools_beside_a_loose_one_keep_their_schemas),
        cmocka_unit_test(tools_that_are_too_large_together_are_loose),
        cmocka_unit_test(a_model_gives_grammars),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

#else
#include "support/without_jansson.h"
#endif
