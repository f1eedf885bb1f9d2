/* What schemas allow, id by id, against another implementation: xgrammar's masks along random walks
 * (tools/oracle/schema_masks.mjs) over the vocabulary of the demo model. Where carat differs on
 * purpose, a table below says so and why; anything else fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "grammar/state.h"
#include "json/json_tree.h"
#include "support/cost.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#ifdef CARAT_HAVE_JSON

#define GOLDEN CARAT_SOURCE_DIR "/tests/golden/"

enum { WORDS_MAX = 64, SHOWN_MAX = 40 };

struct oracle {
    struct gguf *g;
    struct vocab *v;
    struct token_index *index;
    struct json_tree schemas, masks;
    int32_t n_vocab;
};

static void read_json(const char *path, struct json_tree *tree)
{
    struct buf text = {0};
    struct carat_error err;
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s is not there", path);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) buf_add(&text, block, n);
    fclose(f);
    if (json_tree_read(tree, buf_text(&text), text.length, JSON_OWN, &err))
        fail_msg("%s: %s", path, err.message);
    buf_deinit(&text);
}

static int open_oracle(void **state)
{
    static struct oracle o;
    struct carat_error err;
    read_json(GOLDEN "schemas.json", &o.schemas);
    read_json(GOLDEN "fixtures/schema-masks.json", &o.masks);
    if (gguf_open(&o.g, CARAT_SOURCE_DIR "/models/demo.gguf", &err)) fail_msg("%s", err.message);
    assert_int_equal(vocab_open(&o.v, o.g, &err), CARAT_OK);
    assert_int_equal(index_open(&o.index, o.v, &err), CARAT_OK);
    o.n_vocab = vocab_count(o.v);
    assert_true(o.n_vocab <= 64 * WORDS_MAX);
    *state = &o;
    return 0;
}

static int close_oracle(void **state)
{
    struct oracle *o = *state;
    index_close(o->index);
    vocab_close(o->v);
    gguf_close(o->g);
    json_tree_free(&o->schemas);
    json_tree_free(&o->masks);
    return 0;
}

static const struct carat_value *find_schema(const struct oracle *o, const struct carat_value *name)
{
    const struct carat_value *all = &o->schemas.root;
    for (size_t i = 0; i < all->as.array.count; i++) {
        const struct carat_value *entry = &all->as.array.items[i];
        if (json_text_is(json_member(entry, "name"), name->as.string.data))
            return json_member(entry, "schema");
    }
    fail_msg("%s is not among the schemas", name->as.string.data);
    return NULL;
}

static int open_schema(carat_grammar **out, const struct oracle *o,
                       const struct carat_value *schema, struct carat_error *err)
{
    struct expr_builder b = {0};
    struct grammar_options options = {.trigger = -1};
    static const struct value_syntax json = {.quote = -1};
    const struct expr *body = NULL;
    int status = json_schema_expr(&b, schema, &json, &body, err);
    if (status == CARAT_OK) {
        int32_t root = rule_add(&b, "root", 4);
        rule_set(&b, root, body);
        status = grammar_open(out, &b, root, o->index, &options, err);
    }
    builder_deinit(&b);
    return status;
}

/* "3,7-9", or "!3,7-9" for all others. */
static void read_mask(const char *text, int32_t n_vocab, uint64_t *bits)
{
    bool is_complement = *text == '!';
    memset(bits, is_complement ? 0xFF : 0, WORDS_MAX * sizeof *bits);
    for (const char *at = text + is_complement; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long id = first; id <= last && id < n_vocab; id++)
            bits[id / 64] ^= UINT64_C(1) << (id % 64);
        at = *end == ',' ? end + 1 : end;
    }
}

static bool has(const uint64_t *bits, int32_t id)
{
    return bits[id / 64] >> (id % 64) & 1;
}

/* ---- Differences ------------------------------------------------------------------------ */

/* An id that one side alone allows after a text. */
struct difference {
    const char *schema, *text; /* its name; what came before */
    size_t text_length;
    const char *piece; /* of the vocabulary */
    size_t piece_length;
    int byte; /* of a byte token; -1: it is none */
};

static bool is_one_of(const char *name, const char *names)
{
    size_t n = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += n)
        if ((at == names || at[-1] == '|') && (at[n] == '|' || at[n] == '\0')) return true;
    return false;
}

static bool piece_has(const struct difference *d, const char *characters)
{
    if (d->byte >= 0) return d->byte > 0 && strchr(characters, d->byte);
    for (size_t i = 0; i < d->piece_length; i++)
        if (d->piece[i] && strchr(characters, d->piece[i])) return true;
    return false;
}

static bool is_line_end(const struct difference *d)
{
    return piece_has(d, "\n\t");
}

static bool begins_with_blank(const struct difference *d)
{
    return d->byte == ' ' || (d->piece_length >= 3 && memcmp(d->piece, "\xE2\x96\x81", 3) == 0);
}

/* In values without a schema they take any number. */
static bool is_second_blank(const struct difference *d)
{
    bool follows_blank = d->text_length > 0 && d->text[d->text_length - 1] == ' ';
    bool is_run = d->piece_length >= 6 && memcmp(d->piece + 3, "\xE2\x96\x81", 3) == 0;
    return begins_with_blank(d) && (follows_blank || is_run) &&
           is_one_of(d->schema, "any|any-object|any-array|open object");
}

static bool is_no_utf8(const struct difference *d)
{
    return d->byte >= 0x80;
}

static bool is_escape(const struct difference *d)
{
    return piece_has(d, "\\");
}

static bool is_escape_in_key(const struct difference *d)
{
    return is_escape(d) && is_one_of(d->schema, "map-of-integers|map of lists|map with named|"
                                                "open object|any-object|any|any-array");
}

/* In strings with minLength or maxLength. */
static bool is_control(const struct difference *d)
{
    return d->byte >= 0 ? d->byte < 0x20 || d->byte == 0x7F : piece_has(d, "\r\v\f\x7F");
}

static bool is_escape_in_bounds(const struct difference *d)
{
    return is_escape(d) &&
           is_one_of(d->schema, "short string|string of two to five|not empty|"
                                "string-list-bounded|slug|sql-agent|resume|kitchen-sink");
}

static bool is_bad_day_or_second(const struct difference *d)
{
    return is_one_of(d->schema, "date|time|date and time|date-time") && piece_has(d, "0123456789");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_long_number(const struct difference *d)
{
    enum { DIGITS_MAX = 18 };
    size_t n = 0;
    while (n < d->text_length && is_digit(d->text[d->text_length - 1 - n])) n++;
    return n + (d->byte >= 0 ? 1 : d->piece_length) > DIGITS_MAX && piece_has(d, "0123456789");
}

static bool is_nullable(const struct difference *d)
{
    return is_one_of(d->schema, "nullable");
}

static bool is_out_of_bounds(const struct difference *d)
{
    return is_one_of(d->schema, "score|price|temperature|hex-color");
}

/* Digits after e, its sign and perhaps digits. */
static bool is_long_exponent(const struct difference *d)
{
    size_t at = d->text_length;
    while (at > 0 && is_digit(d->text[at - 1])) at--;
    if (at > 0 && strchr("+-", d->text[at - 1])) at--;
    return at > 0 && strchr("eE", d->text[at - 1]) && piece_has(d, "0123456789");
}

static bool is_odd_address(const struct difference *d)
{
    return is_one_of(d->schema, "resume|person-closed");
}

static bool is_leading_zero(const struct difference *d)
{
    return is_one_of(d->schema, "uuid") && piece_has(d, "0123456789");
}

static bool is_beyond_length(const struct difference *d)
{
    return is_one_of(d->schema, "word-bounded");
}

/* A pattern may match anywhere in the text. */
static bool is_around_pattern(const struct difference *d)
{
    return is_one_of(d->schema, "contains-digit");
}

static bool is_end_of_prefix(const struct difference *d)
{
    return is_one_of(d->schema, "tuple-open") && piece_has(d, "]");
}

static bool is_their_mistake(const struct difference *d)
{
    return is_one_of(d->schema, "enum with common beginnings") && piece_has(d, "r");
}

static bool is_zero_after_minus(const struct difference *d)
{
    return d->text_length > 0 && d->text[d->text_length - 1] == '-' && piece_has(d, "0");
}

static bool is_blank_in_constant(const struct difference *d)
{
    return begins_with_blank(d) && is_one_of(d->schema, "empty object|const object|const-object|"
                                                        "enum of everything");
}

static const struct reason {
    bool is_ours; /* we alone allow it */
    bool (*applies)(const struct difference *d);
    const char *why;
} reasons[] = {
    {false, is_line_end, "line ends and tabs between tokens: our only blank is a space"},
    {false, is_second_blank, "further blanks, in values without a schema"},
    {false, is_no_utf8, "bytes that no UTF-8 text has there"},
    {false, is_escape_in_key, "escapes in keys that are not named"},
    {false, is_control, "control characters in strings with bounds: no JSON"},
    {false, is_bad_day_or_second, "days that no month has, leap seconds"},
    {false, is_long_exponent, "exponents of three digits"},
    {false, is_long_number, "numbers of more than 18 digits"},
    {false, is_out_of_bounds, "numbers beyond their bounds"},
    {false, is_odd_address, "addresses of mail with characters such as # and backslash"},
    {false, is_leading_zero, "zeros in front of a number of an IPv4 address"},
    {false, is_beyond_length, "other lengths than minLength and maxLength, next to a pattern"},
    {false, is_their_mistake, "\"carr\" for \"car\", \"cart\""},
    {true, is_escape_in_bounds, "escapes in strings with bounds"},
    {true, is_around_pattern, "text before and after a pattern without ^ and $"},
    {true, is_nullable, "null, where OpenAPI's \"nullable\" says so"},
    {true, is_end_of_prefix, "arrays that end inside prefixItems, as minItems allows"},
    {true, is_zero_after_minus, "-0, which is an integer"},
    {true, is_blank_in_constant, "a blank in {} and in constants"},
};
enum { REASONS = sizeof reasons / sizeof *reasons, NEAR = 3 }; /* NEAR: the first ones */

struct counts {
    size_t n_masks, n_equal, n_near, n_walks, n_left;
    size_t n_by_reason[REASONS], n_unexplained; /* ids */
};

/* The number of the reason for a difference; without one, it is printed and counted. */
static int reason_of(const struct difference *d, int32_t id, bool is_ours, struct counts *counts)
{
    char shown[GGUF_PRINTABLE_BYTES];
    for (int i = 0; i < REASONS; i++)
        if (reasons[i].is_ours == is_ours && reasons[i].applies(d)) return i;
    if (counts->n_unexplained++ < SHOWN_MAX)
        print_message("%s: after \"%.*s\": %s alone allow %d, \"%s\"\n", d->schema,
                      (int)d->text_length, d->text, is_ours ? "we" : "they", id,
                      gguf_printable(shown, d->piece, d->piece_length));
    return REASONS;
}

static void compare(const struct oracle *o, const char *name, const struct buf *text,
                    struct grammar_state *s, const uint64_t *theirs, struct counts *counts)
{
    uint64_t ours[WORDS_MAX] = {0};
    int worst = -1;
    grammar_state_mask(s, ours);
    for (int32_t id = 0; id < o->n_vocab; id++) {
        bool is_allowed = grammar_state_allows(s, id);
        if (is_allowed != has(ours, id)) fail_msg("%s: %d: mask and check differ", name, id);
        if (is_allowed == has(theirs, id)) continue;
        struct difference d = {
            .schema = name,
            .text = buf_text(text),
            .text_length = text->length,
            .byte = vocab_class(o->v, id) == TOKEN_BYTE ? vocab_byte_value(o->v, id) : -1};
        d.piece = vocab_piece(o->v, id, &d.piece_length);
        int reason = reason_of(&d, id, is_allowed, counts);
        if (reason < REASONS) counts->n_by_reason[reason]++;
        if (reason > worst) worst = reason;
    }
    counts->n_masks++;
    counts->n_equal += worst < 0;
    counts->n_near += worst < NEAR;
}

/* ---- Walks ------------------------------------------------------------------------------ */

static void follow(const struct oracle *o, const char *name, const carat_grammar *g,
                   const struct carat_value *walk, struct counts *counts)
{
    const struct carat_value *ids = json_member(walk, "ids"), *masks = json_member(walk, "masks");
    const struct carat_value *all = json_member(&o->masks.root, "masks");
    struct grammar_state *s;
    struct carat_error err;
    uint64_t theirs[WORDS_MAX];
    struct buf text = {0};
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    counts->n_walks++;
    for (size_t i = 0; i < masks->as.array.count; i++) {
        int64_t number = masks->as.array.items[i].as.integer;
        read_mask(all->as.array.items[number].as.string.data, o->n_vocab, theirs);
        compare(o, name, &text, s, theirs, counts);
        if (i == ids->as.array.count) break;
        int32_t id = (int32_t)ids->as.array.items[i].as.integer;
        if (!grammar_state_allows(s, id)) {
            counts->n_left++;
            break;
        }
        grammar_state_accept(s, id);
        tokenizer_decode_one(o->v, id, true, &text);
    }
    buf_deinit(&text);
    grammar_state_close(s);
}

static void masks_are_those_of_xgrammar(void **state)
{
    const struct oracle *o = *state;
    const struct carat_value *cases = json_member(&o->masks.root, "cases");
    struct counts counts = {0};
    for (size_t i = 0; i < cases->as.array.count; i++) {
        const struct carat_value *one = &cases->as.array.items[i];
        const char *name = json_member(one, "name")->as.string.data;
        const struct carat_value *walks = json_member(one, "walks");
        carat_grammar *g = NULL;
        struct carat_error err;
        if (open_schema(&g, o, find_schema(o, json_member(one, "name")), &err))
            fail_msg("%s: %s", name, err.message);
        for (size_t k = 0; k < walks->as.array.count; k++)
            follow(o, name, g, &walks->as.array.items[k], &counts);
        grammar_close(g);
    }
    print_message("%zu schemas, %zu walks (%zu left early), %zu masks: %zu equal, %zu but for the "
                  "first %d reasons\n",
                  cases->as.array.count, counts.n_walks, counts.n_left, counts.n_masks,
                  counts.n_equal, counts.n_near, NEAR);
    for (int i = 0; i < REASONS; i++) {
        print_message("%7zu ids that %s alone allow: %s\n", counts.n_by_reason[i],
                      reasons[i].is_ours ? "we" : "they", reasons[i].why);
        assert_true(counts.n_by_reason[i] > 0); /* else the reason is to be removed */
    }
    assert_int_equal(counts.n_unexplained, 0);
    assert_true(cases->as.array.count >= 60 && counts.n_masks >= 3000);
    assert_true(counts.n_left * 10 <= counts.n_walks);
}

/* Every schema of the list compiles, most of them quickly. */
static void schemas_compile_quickly(void **state)
{
    const struct oracle *o = *state;
    const struct carat_value *all = &o->schemas.root;
    size_t n_quick = 0, count = all->as.array.count;
    double total = 0, longest = 0;
    for (size_t i = 0; i < count; i++) {
        const struct carat_value *entry = &all->as.array.items[i];
        double best = 1e9;
        for (int trial = 0; trial < 3; trial++) { /* the machine may be busy */
            carat_grammar *g = NULL;
            struct carat_error err;
            double begin = cost_cpu_seconds();
            if (open_schema(&g, o, json_member(entry, "schema"), &err))
                fail_msg("%s: %s", json_member(entry, "name")->as.string.data, err.message);
            double taken = cost_cpu_seconds() - begin;
            if (taken < best) best = taken;
            grammar_close(g);
        }
        n_quick += best < 0.020;
        total += best;
        if (best > longest) longest = best;
    }
    print_message("%zu schemas: %.2f ms on average, %.2f ms at most; %zu in 20 ms\n", count,
                  total / (double)count * 1e3, longest * 1e3, n_quick);
    assert_true(n_quick * 20 >= count * 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_are_those_of_xgrammar),
                                       cmocka_unit_test(schemas_compile_quickly)};
    return cmocka_run_group_tests(tests, open_oracle, close_oracle);
}

#else
#include "support/without_jansson.h"
#endif
