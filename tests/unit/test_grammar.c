/* Grammars: what they take against a recogniser that tries everything, notation and its errors,
 * masks against checks of single tokens, and bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/takes.h"

static struct grammar_fixture f;

static int open_fixture(void **state)
{
    (void)state;
    grammar_fixture_open(&f, 4096);
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    grammar_fixture_deinit(&f);
    return 0;
}

static carat_grammar *open_gbnf(const char *text)
{
    carat_grammar *g;
    struct carat_error err = {0};
    int status = gbnf_open(&g, &f, text, strlen(text), &err);
    if (status) print_message("%s: %s\n", text, err.message);
    assert_int_equal(status, CARAT_OK);
    return g;
}

/* ---- A recogniser that tries everything ------------------------------------------------- */

enum { TEXT_MAX = 6, RULES = 4 };
typedef uint32_t ends; /* bit i: the text up to i */

struct recogniser {
    const char *text;
    size_t length;
    const struct expr_builder *b;
    ends rules[RULES][TEXT_MAX + 1]; /* where a rule may end that begins at i, as far as known */
};

static ends match(const struct recogniser *r, const struct expr *e, size_t at);

static ends match_each(const struct recogniser *r, const struct expr *e, ends from)
{
    ends to = 0;
    for (size_t i = 0; i <= r->length; i++)
        if (from >> i & 1) to |= match(r, e, i);
    return to;
}

static ends match_repeat(const struct recogniser *r, const struct expr *e, size_t at)
{
    ends now = (ends)1 << at, all = 0;
    uint32_t most = e->most > 40 ? 40 : e->most; /* more can only repeat what is empty */
    for (uint32_t i = 0; i <= most; i++) {
        if (i >= e->least) all |= now;
        now = match_each(r, e->as.items[0], now);
    }
    return all;
}

static ends match_list(const struct recogniser *r, const struct expr *e, size_t at)
{
    ends now = match(r, e->as.items[0], at), all = e->least ? 0 : (ends)1 << at;
    for (int i = 0; i < 20; i++) {
        all |= now;
        now = match_each(r, e->as.items[0], match_each(r, e->separator, now));
    }
    return all;
}

static ends match_members(const struct recogniser *r, const struct expr *e, size_t at)
{
    ends none = (ends)1 << at, some = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        ends before = none | match_each(r, e->separator, some);
        ends with = match_each(r, e->as.items[i], before);
        if (e->is_required[i]) none = some = 0;
        some |= with;
    }
    return some;
}

static ends match(const struct recogniser *r, const struct expr *e, size_t at)
{
    ends all = 0, now = (ends)1 << at;
    switch ((enum expr_kind)e->kind) {
    case EXPR_EMPTY: return now;
    case EXPR_BYTES:
        if (e->n > r->length - at || memcmp(r->text + at, e->as.bytes, e->n) != 0) return 0;
        return (ends)1 << (at + e->n);
    case EXPR_CLASS: /* of ASCII in this test */
        for (uint32_t i = 0; i < e->n && at < r->length; i++)
            if ((unsigned char)r->text[at] >= e->as.ranges[i].first &&
                (unsigned char)r->text[at] <= e->as.ranges[i].last)
                return (ends)1 << (at + 1);
        return 0;
    case EXPR_SEQ:
        for (uint32_t i = 0; i < e->n; i++) now = match_each(r, e->as.items[i], now);
        return now;
    case EXPR_EITHER:
        for (uint32_t i = 0; i < e->n; i++) all |= match(r, e->as.items[i], at);
        return all;
    case EXPR_REPEAT: return match_repeat(r, e, at);
    case EXPR_LIST: return match_list(r, e, at);
    case EXPR_MEMBERS: return match_members(r, e, at);
    case EXPR_RULE: return r->rules[e->as.rule][at];
    default: return 0;
    }
}

static bool recognises(const struct expr_builder *b, const char *text, size_t length)
{
    struct recogniser r = {.text = text, .length = length, .b = b};
    for (bool is_new = true; is_new;) {
        is_new = false;
        for (int32_t rule = 0; rule < b->n_rules && rule < RULES; rule++) {
            for (size_t i = 0; i <= length; i++) {
                ends more = match(&r, b->rules[rule].body, i);
                is_new |= (more & ~r.rules[rule][i]) != 0;
                r.rules[rule][i] |= more;
            }
        }
    }
    return r.rules[0][0] >> length & 1;
}

/* ---- Random grammars -------------------------------------------------------------------- */

static const struct expr *draw_expr(struct rng *r, struct expr_builder *b, int depth)
{
    static const struct char_range classes[] = {{'a', 'a'}, {'b', 'b'}, {'a', 'b'}, {'b', 'c'}};
    static const char *const texts[] = {"a", "b", "ab", "ba", "aab", "c"};
    const struct expr *items[5];
    struct expr_member members[3];
    uint32_t kind = rng_below(r, depth > 0 ? 14 : 6), n = 1 + rng_below(r, 3), least;
    switch (kind) {
    case 0: return expr_empty(b);
    case 1: return expr_class(b, &classes[rng_below(r, 4)], 1, false);
    case 2:
    case 3: return expr_text(b, texts[rng_below(r, 6)]);
    case 4:
    case 5: return expr_rule(b, (int32_t)rng_below(r, RULES));
    case 6:
    case 7:
    case 8:
    case 9:
        for (uint32_t i = 0; i < n; i++) items[i] = draw_expr(r, b, depth - 1);
        return kind < 8 ? expr_seq(b, items, n) : expr_either(b, items, n);
    case 10:
        least = rng_below(r, 3);
        return expr_repeat(b, draw_expr(r, b, depth - 1), least,
                           rng_below(r, 2) ? EXPR_NO_LIMIT : least + rng_below(r, 3));
    case 11: /* counted by the machine: too large to be written out */
        least = rng_below(r, 5);
        for (uint32_t i = 0; i < 2; i++) items[i] = draw_expr(r, b, depth - 1);
        items[2] = expr_optional(b, expr_text(b, "cccccccccccccccccccccccccccccccccccccccccc"));
        return expr_repeat(b, expr_seq(b, items, 3), least,
                           rng_below(r, 2) ? EXPR_NO_LIMIT : least + 2 + rng_below(r, 3));
    case 12:
        items[0] = draw_expr(r, b, depth - 1);
        return expr_list(b, items[0], draw_expr(r, b, depth - 1), rng_below(r, 2), EXPR_NO_LIMIT);
    default:
        for (uint32_t i = 0; i < n; i++)
            members[i] = (struct expr_member){.item = draw_expr(r, b, depth - 1),
                                              .is_required = rng_below(r, 2)};
        return expr_members(b, members, n, draw_expr(r, b, depth - 1));
    }
}

/* All texts over a, b, c up to TEXT_MAX bytes. */
static void check_texts(const carat_grammar *g, const struct expr_builder *b, int number,
                        int *n_ambiguous)
{
    char text[TEXT_MAX + 1];
    for (size_t length = 0; length <= TEXT_MAX; length++) {
        int count = 1;
        for (size_t i = 0; i < length; i++) count *= length > 4 ? 2 : 3;
        for (int k = 0; k < count; k++) {
            int rest = k;
            for (size_t i = 0; i<length; i++, rest /= length> 4 ? 2 : 3)
                text[i] = (char)('a' + rest % (length > 4 ? 2 : 3));
            bool was_cut;
            bool expected = recognises(b, text, length);
            bool found = grammar_reads(g, &f, text, length, &was_cut);
            *n_ambiguous += was_cut;
            if (was_cut && !found) continue;
            if (expected != found)
                print_message("grammar %d, \"%.*s\": %d expected\n", number, (int)length, text,
                              expected);
            assert_int_equal(found, expected);
        }
    }
}

/* Empty rules, ambiguity, left recursion direct, indirect and hidden behind what may be empty. */
static void test_random_grammars(void **state)
{
    (void)state;
    struct rng r = {.state = 4};
    int n_open = 0, n_refused = 0, n_ambiguous = 0;
    print_message("seed 4\n");
    for (int number = 0; number < 600; number++) {
        struct expr_builder b = {0};
        struct carat_error err = {0};
        const struct grammar_options options = {.trigger = -1};
        carat_grammar *g;
        for (int i = 0; i < RULES; i++) rule_add(&b, "r", 1);
        for (int i = 0; i < RULES; i++) rule_set(&b, i, draw_expr(&r, &b, 3));
        assert_int_equal(builder_check(&b, &err), CARAT_OK);
        /* Lists may have made more rules, which the recogniser does not know. */
        int status =
            b.n_rules > RULES ? CARAT_EUSAGE : grammar_open(&g, &b, 0, f.index, &options, &err);
        if (status) {
            n_refused++;
        } else {
            n_open++;
            check_texts(g, &b, number, &n_ambiguous);
            grammar_close(g);
        }
        builder_deinit(&b);
    }
    print_message("%d grammars compared, %d without any text or refused; %d texts too ambiguous\n",
                  n_open, n_refused, n_ambiguous);
    assert_true(n_open > 300);
    assert_true(n_ambiguous < 40000);
}

/* ---- Notation --------------------------------------------------------------------------- */

static void check_takes(const char *grammar, const char *const *good, const char *const *bad)
{
    carat_grammar *g = open_gbnf(grammar);
    assert_takes(g, &f, grammar, good, bad);
    grammar_close(g);
}

static void test_notation(void **state)
{
    (void)state;
    check_takes("root ::= \"a\"", TEXTS("a"), TEXTS("", "b", "aa"));
    check_takes("root ::= \"a\" | \"b\" \"c\"?", TEXTS("a", "b", "bc"), TEXTS("ac", "c"));
    check_takes("# a comment\nroot ::= x y # more\nx ::= [a-c]+\ny ::= [^a-c]\n",
                TEXTS("abcd", "a\xc3\xa9"), TEXTS("abc", "d", "a\xc3"));
    check_takes("root ::= (\n  \"a\" # first\n  | \"b\"\n)\n  | \"c\"", TEXTS("a", "b", "c"),
                TEXTS("d"));
    check_takes("root ::= \"\\x41\\u00e9\\U0001F600\\n\\\"\\\\\"",
                TEXTS("A\xc3\xa9\xf0\x9f\x98\x80\n\"\\"), TEXTS("A"));
    check_takes("root ::= [\\]\\[\\\\a-] [^\\n] .", TEXTS("]xy", "-xy", "\\x\n"),
                TEXTS("b", "]\nx"));
    check_takes("root ::= \"a\"{2} \"b\"{1,2} \"c\"{0,} \"d\"{,1}", TEXTS("aab", "aabbccd"),
                TEXTS("ab", "aabbb", "aabdd"));
    check_takes("root ::= [\\u4e00-\\u9fff]{3}", TEXTS("\xe4\xb8\x80\xe9\xbf\xbf\xe5\x80\x80"),
                TEXTS("\xe4\xb7\xbf\xe4\xb8\x80\xe4\xb8\x80"));
    check_takes("root ::= sum\nsum ::= sum [+-] term | term\nterm ::= [0-9]+ | \"(\" sum \")\"",
                TEXTS("1", "1+2-3", "((4)+5)-6"), TEXTS("", "1+", "(1", "+1"));
    check_takes("root ::= a\na ::= b \"x\" | \"y\"\nb ::= c \"u\" | a\nc ::= a | \"\"",
                TEXTS("y", "ux", "yux", "yxux"), TEXTS("x", "yu"));
    check_takes("root ::= \"\"", TEXTS(""), TEXTS("a"));
    check_takes("root ::= a_1 b-2\r\na_1 ::= \"a\"\r\nb-2 ::= \"b\"\r\n", TEXTS("ab"), TEXTS("a"));
}

static void check_refused(const char *grammar, enum carat_status status, const char *message)
{
    carat_grammar *g;
    struct carat_error err = {0};
    int found = gbnf_open(&g, &f, grammar, strlen(grammar), &err);
    if (found != (int)status || !strstr(err.message, message))
        fail_msg("%.60s: \"%s\" expected, \"%s\" found", grammar, message, err.message);
    assert_null(g);
}

static void test_errors(void **state)
{
    (void)state;
    check_refused("", CARAT_EUSAGE, "line 1, column 1: a rule expected");
    check_refused("root := \"a\"", CARAT_EUSAGE, "line 1, column 6: ::= expected");
    check_refused("root ::= \"a\"\nx ::= \"b", CARAT_EUSAGE, "line 2, column 7: the text does not");
    check_refused("root ::= [a", CARAT_EUSAGE, "line 1, column 10: the class does not end");
    check_refused("root ::= (\"a\"", CARAT_EUSAGE, "line 1, column 10: the group does not end");
    check_refused("root ::= \"a\")", CARAT_EUSAGE, "line 1, column 13: this ) closes no (");
    check_refused("root ::= *", CARAT_EUSAGE, "line 1, column 10: there is nothing to repeat");
    check_refused("root ::= \"\xc3\xa9\" +\n\n  y ::= z", CARAT_EUSAGE,
                  "line 3, column 9: the rule is not defined");
    check_refused("x ::= \"a\"", CARAT_EUSAGE, "no rule of the name root");
    check_refused("root ::= \"a\"\nroot ::= \"b\"", CARAT_EUSAGE,
                  "line 2, column 1: the rule is def");
    check_refused("root ::= \"\\q\"", CARAT_EUSAGE, "line 1, column 11: no such escape");
    check_refused("root ::= [z-a]", CARAT_EUSAGE, "line 1, column 11: a range from a lower");
    check_refused("root ::= \"a\"{3,2}", CARAT_EUSAGE, "line 1, column 13: {m,n}");
    check_refused("root ::= <nothing like this>", CARAT_EUSAGE, "no token of this text");
    check_refused("root ::= <[9999999]>", CARAT_EUSAGE, "the number is too large");
    check_refused("root ::= \"a\" root", CARAT_EUSAGE, "matches no text of finite length");
    check_refused("root ::= root", CARAT_EUSAGE, "matches no text of finite length");
}

static void test_tokens(void **state)
{
    (void)state;
    carat_grammar *g = open_gbnf("root ::= <|tool_call> \"x\" (!<[49]> )* <[49]>");
    struct grammar_state *s;
    struct carat_error err;
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    assert_true(grammar_state_allows(s, 48));
    assert_false(grammar_state_allows(s, vocab_byte(f.text.v, '<')));
    grammar_state_accept(s, 48);
    grammar_state_accept(s, vocab_byte(f.text.v, 'x'));
    assert_true(grammar_state_allows(s, 500));
    assert_true(grammar_state_allows(s, 49));
    assert_false(grammar_state_allows(s, 106)); /* ends an answer */
    grammar_state_accept(s, 500);
    assert_false(grammar_state_is_complete(s));
    grammar_state_accept(s, 49);
    assert_true(grammar_state_is_complete(s));
    assert_true(grammar_state_allows(s, 106));
    assert_string_equal(grammar_state_problem(s), "");
    grammar_state_accept(s, 500);
    assert_string_not_equal(grammar_state_problem(s), "");
    assert_false(grammar_state_allows(s, 106));
    grammar_state_close(s);
    grammar_close(g);
}

/* ---- Thoughts and triggers -------------------------------------------------------------- */

static void test_thoughts(void **state)
{
    (void)state;
    static const int32_t open_thought[] = {105, 100, 500}, closed[] = {100, 500, 101, 501};
    carat_grammar *g = open_gbnf("root ::= \"a\" \"b\"");
    struct grammar_state *s;
    struct carat_error err;
    int32_t a = vocab_byte(f.text.v, 'a'), b = vocab_byte(f.text.v, 'b');
    for (int is_open = 0; is_open < 2; is_open++) {
        assert_int_equal(
            grammar_state_open(&s, g, is_open ? open_thought : closed, is_open ? 3 : 4, &err),
            CARAT_OK);
        assert_int_equal(grammar_state_allows(s, b), is_open);
        if (!is_open) grammar_state_accept(s, 100);
        assert_true(grammar_state_allows(s, b));
        assert_false(grammar_state_allows(s, 106)); /* the answer is still to come */
        grammar_state_accept(s, b);
        grammar_state_accept(s, 101);
        assert_false(grammar_state_allows(s, b));
        assert_false(grammar_state_allows(s, 100)); /* one thought is enough */
        grammar_state_accept(s, a);
        assert_false(grammar_state_allows(s, 100)); /* not inside of the text */
        assert_true(grammar_state_allows(s, b));
        grammar_state_close(s);
    }
    grammar_close(g);
}

static void test_trigger(void **state)
{
    (void)state;
    struct expr_builder b = {0};
    struct carat_error err;
    const struct grammar_options options = {.trigger = 48, .takes_thoughts = true};
    int32_t root = rule_add(&b, "root", 4), x = vocab_byte(f.text.v, 'x');
    const struct expr *items[] = {expr_token(&b, 48), expr_text(&b, "x"), expr_token(&b, 49)};
    rule_set(&b, root, expr_seq(&b, items, 3));
    carat_grammar *g;
    struct grammar_state *s;
    assert_int_equal(grammar_open(&g, &b, root, f.index, &options, &err), CARAT_OK);
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    for (int call = 0; call < 2; call++) {
        assert_true(grammar_state_is_free(s));
        grammar_state_accept(s, 600);
        assert_true(grammar_state_allows(s, 106));
        grammar_state_accept(s, 48);
        assert_false(grammar_state_is_free(s));
        assert_false(grammar_state_allows(s, 600));
        grammar_state_accept(s, x);
        grammar_state_accept(s, 49);
    }
    assert_true(grammar_state_is_free(s));
    grammar_state_accept(s, 100);
    grammar_state_accept(s, 48); /* in a thought it is text */
    assert_true(grammar_state_is_free(s));
    grammar_state_close(s);
    grammar_close(g);
    builder_deinit(&b);
}

/* ---- Masks ------------------------------------------------------------------------------ */

/* The first of the ids that are likely to come may come. */
static void check_likely(struct grammar_state *s, int32_t last, const char *grammar)
{
    int32_t ids[8];
    int32_t n = grammar_state_expect(s, last, ids, 8);
    assert_in_range(n, 0, 8);
    if (n > 0 && !grammar_state_allows(s, ids[0]))
        fail_msg("%s: %d is expected and not allowed", grammar, ids[0]);
}

/* Every bit of the mask says what the check of the token says. */
static void check_mask(struct grammar_state *s, uint64_t *bits, const char *grammar)
{
    grammar_state_mask(s, bits);
    for (int32_t id = 0; id < vocab_count(f.text.v); id++) {
        bool bit = bits[id / 64] >> id % 64 & 1;
        if (bit != grammar_state_allows(s, id)) {
            size_t n;
            const char *piece = vocab_piece(f.text.v, id, &n);
            fail_msg("%s: token %d \"%.*s\": bit %d", grammar, id, (int)n, piece, bit);
        }
    }
}

static void test_masks(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= \"{\" [a-z]+ \":\" [^\"\\\\]* \"}\"",
        "root ::= .{0,40} \"end\"",
        "root ::= [^\\n]{3,7} \"\\n\" root | \"\"",
        "root ::= \"\\\"\" char{2,300} \"\\\"\" (\",\" root)?\n"
        "char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" [nt\\\"\\\\]",
        "root ::= ([a-zA-Z0-9_]+ | [\\u0400-\\u04ff]+) (\" \" root)?",
        "root ::= (.. )* \"x\"", /* after each second character */
        "root ::= item{2,}\nitem ::= \"- \" [^\\n]+ \"\\n\"",
        "root ::= \"(\" root \")\" root | [0-9]*",
        "root ::= (\"a\" | !<[49]>)* <[49]>",
        "root ::= \"name\" [^x]* | \"n\" [^y]+ | [^n\"] [^\"]*",
    };
    uint64_t bits[4096 / 64];
    struct rng r = {.state = 9};
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        carat_grammar *g = open_gbnf(grammars[i]);
        struct grammar_state *s;
        struct carat_error err;
        assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
        for (int32_t step = 0, last = -1; step < 25; step++) {
            check_mask(s, bits, grammars[i]);
            check_likely(s, last, grammars[i]);
            int32_t id = last = draw_allowed(&r, &f, bits, false);
            if (id < 0) break;
            grammar_state_accept(s, id);
        }
        grammar_state_close(s);
        grammar_close(g);
    }
}

/* ---- What is likely to come ------------------------------------------------------------- */

/* The text of what is likely to come after `before`; each id of it is allowed in turn. */
static void expect_likely(const char *grammar, const char *before, const char *wanted, int32_t most)
{
    carat_grammar *g = open_gbnf(grammar);
    struct grammar_state *s;
    struct carat_error err;
    struct buf text = {0};
    int32_t ids[32], last = -1;
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    for (; *before; before++) {
        last = vocab_byte(f.text.v, (uint8_t)*before);
        grammar_state_accept(s, last);
    }
    int32_t n = grammar_state_expect(s, last, ids, most);
    for (int32_t i = 0; i < n; i++) {
        const struct token_index *x = f.index;
        assert_true(grammar_state_allows(s, ids[i]));
        grammar_state_accept(s, ids[i]);
        buf_add(&text, (const char *)x->bytes + x->begin[ids[i]],
                x->begin[ids[i] + 1] - x->begin[ids[i]]);
    }
    if (most > 1) assert_string_equal(buf_text(&text), wanted);
    if (most == 1) assert_int_equal(n, 1);
    buf_deinit(&text);
    grammar_state_close(s);
    grammar_close(g);
}

static void what_a_grammar_leaves_is_likely(void **state)
{
    (void)state;
    static const char member[] =
        "root ::= \"{\" ws \"\\\"name\\\"\" ws \":\" ws \"\\\"\" [a-z]* "
        "\"\\\"\" ws \",\" ws \"\\\"age\\\"\" ws \":\" ws [0-9]+ ws \"}\"\n"
        "ws ::= [ \\n\\t]*";
    expect_likely("root ::= \"full_name\" [a-z]+", "", "", 32); /* a thought may come first */
    expect_likely("root ::= \"full_name\" [a-z]+", "f", "ull_name", 32);
    expect_likely("root ::= \"full_name\" [a-z]+", "full_", "name", 32);
    expect_likely("root ::= \"full_name\" [a-z]+", "f", "", 1);
    expect_likely("root ::= \"a\" [bc]", "a", "", 32);
    expect_likely("root ::= \"abc\" \"d\"?", "a", "bc", 32);
    expect_likely("root ::= \"wx\" <[49]>", "w", "x", 32);
    expect_likely("root ::= \"a\" [a-z: ]+", "a:", "", 32); /* free text */
    expect_likely(member, "{", "\"name\": \"", 32);
    expect_likely(member, "{\n\t\"", "name\": \"", 32);
    expect_likely(member, "{\"name\": \"b", "", 32);
    expect_likely(member, "{\"name\":\"b\"", ", \"age\": ", 32);
    expect_likely(member, "{\"name\":\"b\",", " \"age\": ", 32);
    expect_likely(member, "{\"name\":\"b\",\"age\":", " ", 32);
    expect_likely(member, "{\"name\":\"b\",\"age\":5", "", 32);
}

/* Walks so long that the machine's tables overflow many times: other states must survive. */
static void test_compacting(void **state)
{
    (void)state;
    carat_grammar *g =
        open_gbnf("root ::= item{0,1000000}\n"
                  "item ::= \"(\" item \")\" | [a-z]{1,100000} \" \" | [0-9]+ \" \"");
    enum { N = 3 };
    struct grammar_state *s[N];
    struct carat_error err;
    static const char text[] = "ab (cd )12 ((e ))";
    for (int i = 0; i < N; i++)
        assert_int_equal(grammar_state_open(&s[i], g, NULL, 0, &err), CARAT_OK);
    for (int step = 0; step < 60000; step++) {
        struct grammar_state *one = s[step % N];
        int32_t id = vocab_byte(f.text.v, (uint8_t)text[step / N % (int)(sizeof text - 1)]);
        if (!grammar_state_allows(one, id))
            fail_msg("step %d: %s", step, grammar_state_problem(one));
        grammar_state_accept(one, id);
    }
    for (int i = 0; i < N; i++) grammar_state_close(s[i]);
    grammar_close(g);
}

/* ---- Bounds ----------------------------------------------------------------------------- */

static char *repeat_text(const char *before, const char *text, size_t times, const char *after)
{
    struct buf b = {0};
    buf_add_text(&b, before);
    for (size_t i = 0; i < times; i++) buf_add_text(&b, text);
    buf_add_text(&b, after);
    assert_false(b.failed);
    return b.data;
}

static void test_bounds(void **state)
{
    (void)state;
    char *text = repeat_text("root ::= ", "(", 60000, "");
    check_refused(text, CARAT_EUSAGE, "at most 100 parentheses");
    mem_free(text);
    text = repeat_text("root ::= ", "\"a\" ", 200000, "");
    carat_grammar *g = open_gbnf(text);
    grammar_close(g);
    mem_free(text);
    text = repeat_text("root ::= \"a\"", "{1000}", 4, "");
    g = open_gbnf(text);
    assert_false(grammar_takes(g, &f, "a", 1));
    grammar_close(g);
    mem_free(text);
    text = repeat_text("root ::= ((\"\")", "{2}{2}{2}{2}{2}{2}", 8, ")");
    struct carat_error err = {0};
    int status = gbnf_open(&g, &f, text, strlen(text), &err);
    assert_true(status == CARAT_EUNSUPPORTED || status == CARAT_OK);
    if (!status) grammar_close(g);
    mem_free(text);
    check_takes("root ::= [a-z]{0,100000} \"!\"", TEXTS("!", "abc!"), TEXTS("a"));
    struct buf chain = {0};
    buf_add_text(&chain, "root ::= r0\n");
    for (int i = 0; i < 5000; i++) buf_printf(&chain, "r%d ::= r%d\n", i, i + 1);
    buf_add_text(&chain, "r5000 ::= \"a\"\n");
    check_takes(chain.data, TEXTS("a"), TEXTS("b"));
    buf_deinit(&chain);
}

/* Deeper nesting than the machine has frames for is not offered, and nothing breaks. */
static void test_depth(void **state)
{
    (void)state;
    carat_grammar *g = open_gbnf("root ::= \"(\" root \")\" | \"x\"");
    struct grammar_state *s;
    struct carat_error err;
    int depth = 0;
    int32_t bracket = vocab_byte(f.text.v, '(');
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    while (grammar_state_allows(s, bracket) && depth < 1000) {
        grammar_state_accept(s, bracket);
        depth++;
    }
    print_message("%d brackets\n", depth);
    assert_in_range(depth, MACHINE_DEPTH_MAX - 2, MACHINE_DEPTH_MAX + 1);
    assert_true(grammar_state_allows(s, vocab_byte(f.text.v, 'x')));
    grammar_state_close(s);
    grammar_close(g);
}

/* Every allocation fails in turn: an error each time, and nothing is left. */
static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] = "root ::= a+ \"x\"{2,90} [^b]\na ::= a \"y\" | <[48]> | \"z\"";
    long before = mem_blocks_live();
    int n = 0;
    for (;; n++) {
        carat_grammar *g;
        struct carat_error err = {0};
        mem_fail_after(n);
        int status = gbnf_open(&g, &f, text, sizeof text - 1, &err);
        int failed = mem_fail_after(-1);
        if (!status) grammar_close(g);
        assert_int_equal(mem_blocks_live(), before);
        if (!failed) break;
        assert_int_equal(status, CARAT_EMEMORY);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_grammars), cmocka_unit_test(test_notation),
        cmocka_unit_test(test_errors),          cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_thoughts),        cmocka_unit_test(test_trigger),
        cmocka_unit_test(test_masks),           cmocka_unit_test(what_a_grammar_leaves_is_likely),
        cmocka_unit_test(test_compacting),      cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_depth),           cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
