#include "support/grammars.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "json/json_tree.h"

enum { N_GIVEN = 1024 };

static void add_word(struct rng *r, struct buf *out)
{
    static const char common[] = "eeeeetttaaooiinnsshhrrddllcumwfgypbvk";
    uint32_t n = 1 + rng_below(r, 9), is_capital = rng_below(r, 5) == 0;
    for (uint32_t i = 0; i < n; i++) {
        char c = common[rng_below(r, sizeof common - 1)];
        buf_add_char(out, is_capital && i == 0 ? (char)(c - 'a' + 'A') : c);
    }
}

static void add_foreign(struct rng *r, struct buf *out)
{
    static const uint32_t ranges[][2] = {
        {0xE0, 0x17F}, {0x391, 0x3C9}, {0x410, 0x44F}, {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3}};
    const uint32_t *range = ranges[rng_below(r, 5)];
    for (uint32_t n = 1 + rng_below(r, 4); n > 0; n--) {
        char text[4];
        uint32_t c = range[0] + rng_below(r, range[1] - range[0] + 1);
        buf_add(out, text, (size_t)utf8_write(c, text));
    }
}

static void add_code(struct rng *r, struct buf *out)
{
    static const char *const pieces[] = {"\"",  "\":",  "\",", "{\"", "[\"",  "\"}", "}]", "},",
                                         ":",   ",",    "{",   "}",   "[",    "]",   "(",  ")",
                                         "\\n", "\\\"", "\\",  "_",   ".",    "-",   "\n", "\t",
                                         "=\"", "/",    "0",   "1",   "true", "null"};
    for (uint32_t n = 1 + rng_below(r, 3); n > 0; n--) {
        buf_add_text(out, pieces[rng_below(r, sizeof pieces / sizeof *pieces)]);
        if (rng_below(r, 3) == 0) add_word(r, out);
        if (rng_below(r, 8) == 0) buf_add_text(out, "\xe2\x96\x81");
    }
}

static void add_token(struct rng *r, struct buf *out)
{
    uint32_t kind = rng_below(r, 20);
    if (kind < 9) buf_add_text(out, "\xe2\x96\x81");
    if (kind < 13)
        add_word(r, out);
    else if (kind < 16)
        add_foreign(r, out);
    else
        add_code(r, out);
}

static void change_tokens(struct text_fixture *f, int n_vocab)
{
    struct text_fixture given;
    struct rng r = {.state = 17};
    size_t n = (size_t)n_vocab;
    struct gguf_string *tokens = mem_alloc(n, sizeof *tokens);
    int32_t *types = mem_alloc(n, sizeof *types);
    struct buf text = {0};
    carat_assert(tokens && types);
    text_fixture_open(&given, N_GIVEN);
    size_t *begin = mem_alloc(n + 1, sizeof *begin);
    carat_assert(begin);
    for (size_t i = 0; i < n; i++) {
        size_t length;
        begin[i] = text.length;
        if (i < N_GIVEN) {
            const char *piece = vocab_piece(given.v, (int32_t)i, &length);
            buf_add(&text, piece, length);
        } else {
            add_token(&r, &text);
        }
        enum token_class class = i < N_GIVEN ? vocab_class(given.v, (int32_t)i) : TOKEN_PLAIN;
        types[i] = class == TOKEN_PLAIN     ? 1
                   : class == TOKEN_BYTE    ? 6
                   : class == TOKEN_CONTROL ? 3
                                            : 4;
    }
    begin[n] = text.length;
    for (size_t i = 0; i < n; i++)
        tokens[i] =
            (struct gguf_string){.data = text.data + begin[i], .length = begin[i + 1] - begin[i]};
    gguf_put_strings(&f->writer, "tokenizer.ggml.tokens", tokens, n);
    gguf_put_array(&f->writer, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    gguf_put_strings(&f->writer, "tokenizer.ggml.merges", tokens, 0);
    gguf_drop_key(&f->writer, "tokenizer.ggml.scores");
    text_fixture_deinit(&given);
    buf_deinit(&text);
    mem_free(begin);
    mem_free(tokens);
    mem_free(types);
}

void grammar_fixture_open(struct grammar_fixture *f, int n_vocab)
{
    struct carat_error err = {0};
    *f = (struct grammar_fixture){0};
    text_fixture_init(&f->text, N_GIVEN);
    change_tokens(&f->text, n_vocab);
    text_fixture_parse(&f->text);
    int status = vocab_open(&f->text.v, f->text.g, &err);
    if (status) fprintf(stderr, "%s\n", err.message);
    carat_assert(status == CARAT_OK);
    carat_assert(index_open(&f->index, f->text.v, &err) == CARAT_OK);
}

void grammar_fixture_deinit(struct grammar_fixture *f)
{
    index_close(f->index);
    text_fixture_deinit(&f->text);
}

static const struct grammar_options at_once = {.trigger = -1, .takes_thoughts = true};

int gbnf_open(carat_grammar **out, const struct grammar_fixture *f, const char *text, size_t length,
              struct carat_error *err)
{
    struct expr_builder b = {0};
    int32_t root;
    *out = NULL;
    int status = gbnf_read(&b, f->text.v, text, length, &root, err);
    if (!status) status = grammar_open(out, &b, root, f->index, &at_once, err);
    builder_deinit(&b);
    return status;
}

int json_schema_open(carat_grammar **out, const struct grammar_fixture *f, const char *text,
                     size_t length, struct carat_error *err)
{
    const struct value_syntax json = {.quote = -1};
    struct expr_builder b = {0};
    struct json_tree tree;
    const struct expr *body = NULL;
    *out = NULL;
    int status = json_tree_read(&tree, text, length, JSON_PLAIN, err);
    if (status) return status;
    status = json_schema_expr(&b, &tree.root, &json, &body, err);
    json_tree_free(&tree);
    int32_t root = status ? -1 : rule_add(&b, "root", 4);
    rule_set(&b, root, body);
    if (!status) status = grammar_open(out, &b, root, f->index, &at_once, err);
    builder_deinit(&b);
    return status;
}

bool grammar_takes(const carat_grammar *g, const struct grammar_fixture *f, const char *text,
                   size_t length)
{
    bool was_cut;
    return grammar_reads(g, f, text, length, &was_cut);
}

bool grammar_reads(const carat_grammar *g, const struct grammar_fixture *f, const char *text,
                   size_t length, bool *was_cut)
{
    struct grammar_state *s;
    struct carat_error err;
    bool is_taken = true;
    carat_assert(grammar_state_open(&s, g, NULL, 0, &err) == CARAT_OK);
    for (size_t i = 0; i < length && is_taken; i++) {
        int32_t id = vocab_byte(f->text.v, (uint8_t)text[i]);
        is_taken = grammar_state_allows(s, id);
        grammar_state_accept(s, id);
    }
    is_taken = is_taken && grammar_state_is_complete(s);
    *was_cut = machine_was_cut(g->machine) || strstr(grammar_state_problem(s), "too ambiguous");
    grammar_state_close(s);
    return is_taken;
}

int32_t draw_allowed(struct rng *r, const struct grammar_fixture *f, const uint64_t *bits,
                     bool may_stop)
{
    int32_t n = vocab_count(f->text.v), found = -1;
    uint32_t count = 0;
    for (int32_t word = 0; word * 64 < n; word++) {
        if (!bits[word]) continue;
        for (int32_t id = word * 64; id < word * 64 + 64; id++) {
            if (!(bits[word] >> id % 64 & 1) || (!may_stop && f->index->is_stop[id])) continue;
            if (rng_below(r, ++count) == 0) found = id;
        }
    }
    return found;
}

void add_token_text(const struct grammar_fixture *f, int32_t id, struct buf *text)
{
    uint32_t begin = f->index->begin[id];
    buf_add(text, f->index->bytes + begin, f->index->begin[id + 1] - begin);
}
