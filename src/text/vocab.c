/* Three tables are built from the file's lists: token text -> id (open addressing, hash compared
 * by text), (left id, right id) -> merge (open addressing), and the special tokens sorted by
 * text, which serves as a trie. Invariant after open: every id in them is in range, and no
 * merge involves a token that is not plain, so that BPE alone can never make a special token.
 * Each vocabulary has a random hash key, and half of the slots stay free, so that no file can make
 * look-ups slow.
 *
 * Legal: duplicate texts (the first id wins), NUL bytes in a text (lengths are explicit), token
 * types that are missing. Refused: an empty text (a token without effect), one that is too long,
 * one that is not UTF-8. */
#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/hex.h"
#include "base/mem.h"
#include "base/utf8.h"

enum {
    TOKENS_MAX = 1 << 22,
    MERGES_MAX = 1 << 23,
    TOKEN_BYTES_MAX = 4096, /* the longest token of the real vocabulary has 93 */
    ID_LIST_MAX = 65536,
    STOPS_MAX = 64,
    /* Longer special tokens are not searched for in texts: a look-up at each byte takes as many
     * steps as the longest token has bytes. The longest of the real vocabulary has 16. */
    SPECIAL_BYTES_MAX = 128,
};

/* Types of tokenizer.ggml.token_type that mean something here. */
enum { TYPE_CONTROL = 3, TYPE_BYTE = 6 };

struct merge {
    int32_t left, right, product;
    int32_t rank_plus_1; /* 0: the slot is free */
};

struct vocab {
    const struct gguf_string *tokens; /* in the file */
    int32_t count;
    struct hash_key key;
    uint8_t *classes; /* enum token_class */
    int32_t *slots;   /* id + 1, 0: free */
    uint32_t slot_mask;
    struct merge *merges;
    uint32_t merge_mask;
    bool joins_words;         /* some merge joins what is before a space with the space */
    int32_t *sorted_specials; /* by text; those that texts are searched for */
    int32_t n_specials;
    bool begins_special[256];
    int32_t bytes[256];
    int32_t specials[VOCAB_SPECIAL_COUNT];
    int32_t stops[STOPS_MAX];
    size_t n_stops;
    int32_t *suppressed;
    size_t n_suppressed;
    size_t longest_plain, longest; /* bytes; of all tokens */
    char note[256];
};

static const struct special {
    const char *text;
    bool is_user_defined, is_required;
} special_list[] = {
#define X(name, text, is_user_defined, is_required) {text, is_user_defined, is_required},
    VOCAB_SPECIAL_LIST(X)
#undef X
};

/* ---- Look-up ---------------------------------------------------------------------------- */

static bool text_equals(struct gguf_string a, const char *text, size_t length)
{
    return a.length == length && memcmp(a.data, text, length) == 0;
}

/* A text in two parts, of which the second may be empty. */
struct two_parts {
    struct gguf_string a, b;
};

static bool is_joined(struct gguf_string s, const struct two_parts *text)
{
    return s.length == text->a.length + text->b.length &&
           memcmp(s.data, text->a.data, text->a.length) == 0 &&
           memcmp(s.data + text->a.length, text->b.data, text->b.length) == 0;
}

static uint32_t first_slot(const struct vocab *v, const char *text, size_t length)
{
    return (uint32_t)hash_bytes(v->key, text, length) & v->slot_mask;
}

/* The slot with this text, whose first slot is i, or the free one where it belongs. */
static int32_t *find_slot(const struct vocab *v, uint32_t i, const struct two_parts *text)
{
    while (v->slots[i] && !is_joined(v->tokens[v->slots[i] - 1], text)) i = (i + 1) & v->slot_mask;
    return &v->slots[i];
}

static int32_t *slot_of(const struct vocab *v, struct gguf_string s)
{
    return find_slot(v, first_slot(v, s.data, s.length), &(struct two_parts){s, {"", 0}});
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t length)
{
    return *slot_of(v, (struct gguf_string){text, length}) - 1;
}

int32_t vocab_find_plain(const struct vocab *v, const char *text, size_t length)
{
    int32_t id = vocab_find(v, text, length);
    return id >= 0 && v->classes[id] == TOKEN_PLAIN ? id : -1;
}

static struct merge *find_merge(const struct vocab *v, int32_t left, int32_t right)
{
    const int32_t pair[2] = {left, right};
    uint32_t i = (uint32_t)hash_bytes(v->key, pair, sizeof pair) & v->merge_mask;
    while (v->merges[i].rank_plus_1 && (v->merges[i].left != left || v->merges[i].right != right))
        i = (i + 1) & v->merge_mask;
    return &v->merges[i];
}

bool vocab_joins_words(const struct vocab *v)
{
    return v->joins_words;
}

int32_t vocab_merge(const struct vocab *v, int32_t left, int32_t right, int32_t *product)
{
    if (left < 0 || right < 0) return -1;
    const struct merge *m = find_merge(v, left, right);
    if (m->rank_plus_1 == 0) return -1;
    *product = m->product;
    return m->rank_plus_1 - 1;
}

static int special_byte(const struct vocab *v, int32_t i, size_t depth)
{
    return (unsigned char)v->tokens[v->sorted_specials[i]].data[depth];
}

/* The first special in [low, high) whose byte at `depth` is not below `least`. All in the range are
 * longer than `depth` and equal before it. */
static int32_t bound(const struct vocab *v, int32_t low, int32_t high, size_t depth, int least)
{
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (special_byte(v, middle, depth) < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t vocab_match_special(const struct vocab *v, enum carat_special special, const char *text,
                            size_t length, size_t *matched)
{
    if (special == CARAT_SPECIAL_NONE) return -1;
    int32_t best = -1, low = 0, high = v->n_specials;
    for (size_t depth = 0; low < high; depth++) {
        /* A token that ends here comes first in the range: a prefix sorts before longer texts. */
        int32_t id = v->sorted_specials[low];
        if (v->tokens[id].length == depth) {
            low++;
            if (special == CARAT_SPECIAL_ALL || v->classes[id] == TOKEN_USER_DEFINED) {
                best = id;
                *matched = depth;
            }
        }
        if (depth == length) break;
        int c = (unsigned char)text[depth];
        if (low < high && special_byte(v, low, depth) == c && special_byte(v, high - 1, depth) == c)
            continue; /* all of them have this byte next */
        low = bound(v, low, high, depth, c);
        high = bound(v, low, high, depth, c + 1);
    }
    return best;
}

size_t vocab_next_special(const struct vocab *v, const char *text, size_t from, size_t length)
{
    while (from < length && !v->begins_special[(unsigned char)text[from]]) from++;
    return from;
}

/* ---- Opening ---------------------------------------------------------------------------- */

/* The value of two hex digits of either case, -1 if there is another character. */
static int hex_pair(const char *s)
{
    int value = 0;
    for (int i = 0; i < 2; i++) {
        int digit = hex_value(s[i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* The byte that "<0x41>" stands for, or -1. */
static int byte_of_text(struct gguf_string s)
{
    if (s.length != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>') return -1;
    return hex_pair(s.data + 3);
}

static uint32_t power_of_two_above(uint32_t n)
{
    uint32_t size = 16;
    while (size < n) size *= 2;
    return size;
}

static int check_model(struct vocab *v, const struct gguf *g, struct carat_error *err)
{
    struct gguf_string model = {"", 0}, pre = {"", 0};
    TRY(gguf_get_string(g, "tokenizer.ggml.model", &model, err));
    TRY(gguf_get_string(g, "tokenizer.ggml.pre", &pre, err));
    bool is_gemma4 = text_equals(model, "gemma4", 6);
    bool pre_is_gemma4 = text_equals(pre, "gemma4", 6);
    char shown[GGUF_PRINTABLE_BYTES];
    if (!is_gemma4 && !(text_equals(model, "llama", 5) && pre_is_gemma4)) {
        err_set(
            err, CARAT_EFORMAT,
            "tokenizer.ggml.model: \"gemma4\", or \"llama\" with tokenizer.ggml.pre \"gemma4\", "
            "expected, \"%s\" found",
            gguf_printable(shown, model.data, model.length));
        err_hint(err, "the file was not made from a Gemma 4 model, or by an old converter");
        return CARAT_EFORMAT;
    }
    if (is_gemma4 && pre.length > 0 && !pre_is_gemma4 && !text_equals(pre, "default", 7))
        snprintf(
            v->note, sizeof v->note,
            "tokenizer.ggml.pre is not one that was tested; the file may tokenize differently");
    bool flag = false;
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &flag, err));
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &flag, err));
    return gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &flag, err);
}

/* A list parallel to the tokens: absent (*out NULL), or of this type and length. */
static int find_parallel(const struct vocab *v, const struct gguf *g, const char *key,
                         enum gguf_type type, const struct gguf_kv **out, struct carat_error *err)
{
    *out = gguf_find(g, key);
    if (!*out) return CARAT_OK;
    if ((*out)->type != GGUF_ARRAY || (*out)->element_type != type)
        return err_set(
            err, CARAT_EFORMAT, "%s: an array of %s expected, %s%s found", key,
            gguf_type_name(type), (*out)->type == GGUF_ARRAY ? "an array of " : "",
            gguf_type_name((*out)->type == GGUF_ARRAY ? (*out)->element_type : (*out)->type));
    if ((*out)->count != (uint64_t)v->count)
        return err_set(err, CARAT_EFORMAT,
                       "%s: %d elements expected, as many as tokens, %llu found", key, v->count,
                       (unsigned long long)(*out)->count);
    return CARAT_OK;
}

static int find_tokens(struct vocab *v, const struct gguf *g, struct carat_error *err)
{
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) {
        err_set(err, CARAT_EFORMAT, "%s: missing", key);
        err_hint(err,
                 "the file has no vocabulary; it may be a part of a model, such as an adapter");
        return CARAT_EFORMAT;
    }
    if (kv->type != GGUF_ARRAY || kv->element_type != GGUF_STRING)
        return err_set(err, CARAT_EFORMAT, "%s: an array of string expected", key);
    if (kv->count < 2 || kv->count > TOKENS_MAX)
        return err_set(err, CARAT_EFORMAT, "%s: 2 to %d tokens expected, %llu found", key,
                       TOKENS_MAX, (unsigned long long)kv->count);
    v->tokens = kv->strings;
    v->count = (int32_t)kv->count;
    return CARAT_OK;
}

static int check_text(int32_t id, struct gguf_string s, struct carat_error *err)
{
    const char *key = "tokenizer.ggml.tokens";
    if (s.length == 0) return err_set(err, CARAT_EFORMAT, "%s[%d]: the text is empty", key, id);
    if (s.length > TOKEN_BYTES_MAX)
        return err_set(err, CARAT_EFORMAT, "%s[%d]: at most %d bytes expected, %zu found", key, id,
                       TOKEN_BYTES_MAX, s.length);
    size_t valid = utf8_valid_prefix(s.data, s.length);
    if (valid < s.length)
        return err_set(err, CARAT_EFORMAT, "%s[%d]: no valid UTF-8 at byte %zu", key, id, valid);
    return CARAT_OK;
}

/* The text decides before the type: types differ between files, texts do not. Some converters mark
 * "</s>" as control, but it is an ordinary HTML tag of the vocabulary. */
static enum token_class class_of(struct vocab *v, int32_t id, int64_t type)
{
    struct gguf_string s = v->tokens[id];
    for (int i = 0; s.data[0] == '<' && i < VOCAB_SPECIAL_COUNT; i++) {
        if (!text_equals(s, special_list[i].text, strlen(special_list[i].text))) continue;
        if (v->specials[i] < 0) v->specials[i] = id;
        return special_list[i].is_user_defined ? TOKEN_USER_DEFINED : TOKEN_CONTROL;
    }
    if (byte_of_text(s) >= 0) return TOKEN_BYTE;
    return type == TYPE_CONTROL && !text_equals(s, "</s>", 4) ? TOKEN_CONTROL : TOKEN_PLAIN;
}

/* Whether the token is one that texts are searched for. */
static bool is_sought(const struct vocab *v, int32_t id)
{
    return vocab_is_special(v, id) && v->tokens[id].length <= SPECIAL_BYTES_MAX;
}

static int add_token(struct vocab *v, int32_t id, int64_t type, struct carat_error *err)
{
    struct gguf_string s = v->tokens[id];
    TRY(check_text(id, s, err));
    int byte = byte_of_text(s);
    if (type == TYPE_BYTE && byte < 0)
        return err_set(err, CARAT_EFORMAT,
                       "tokenizer.ggml.tokens[%d]: a byte token such as <0x41> expected", id);
    enum token_class class = class_of(v, id, type);
    v->classes[id] = (uint8_t) class;
    if (class == TOKEN_BYTE && v->bytes[byte] < 0) v->bytes[byte] = id;
    if (class == TOKEN_PLAIN && s.length > v->longest_plain) v->longest_plain = s.length;
    if (s.length > v->longest) v->longest = s.length;
    if (is_sought(v, id)) {
        v->n_specials++;
        v->begins_special[(unsigned char)s.data[0]] = true;
    }
    int32_t *slot = slot_of(v, s);
    if (*slot == 0) *slot = id + 1;
    return CARAT_OK;
}

static int read_tokens(struct vocab *v, const struct gguf *g, struct carat_error *err)
{
    TRY(find_tokens(v, g, err));
    const struct gguf_kv *scores, *types;
    TRY(find_parallel(v, g, "tokenizer.ggml.scores", GGUF_F32, &scores, err));
    TRY(find_parallel(v, g, "tokenizer.ggml.token_type", GGUF_I32, &types, err));

    uint32_t n_slots = power_of_two_above((uint32_t)v->count * 2);
    v->slot_mask = n_slots - 1;
    v->classes = mem_alloc((size_t)v->count, 1);
    v->slots = mem_alloc(n_slots, sizeof *v->slots);
    if (!v->classes || !v->slots) return err_no_memory(err, "vocabulary", n_slots * 4ul);
    for (int i = 0; i < 256; i++) v->bytes[i] = -1;
    for (int i = 0; i < VOCAB_SPECIAL_COUNT; i++) v->specials[i] = -1;
    for (int32_t id = 0; id < v->count; id++)
        TRY(add_token(v, id, types ? gguf_array_int(types, (uint64_t)id) : 0, err));

    for (int i = 0; i < 256; i++)
        if (v->bytes[i] < 0)
            return err_set(err, CARAT_EFORMAT,
                           "tokenizer.ggml.tokens: the byte token <0x%02X> is missing",
                           (unsigned)i);
    for (int i = 0; i < VOCAB_SPECIAL_COUNT; i++) {
        if (!special_list[i].is_required || v->specials[i] >= 0) continue;
        err_set(err, CARAT_EFORMAT, "tokenizer.ggml.tokens: the control token %s is missing",
                special_list[i].text);
        err_hint(err, "the vocabulary is not that of Gemma 4");
        return CARAT_EFORMAT;
    }
    return CARAT_OK;
}

static int compare_texts(struct gguf_string a, struct gguf_string b)
{
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = memcmp(a.data, b.data, shorter);
    if (order != 0) return order;
    return (a.length > b.length) - (a.length < b.length);
}

struct sort_item {
    struct gguf_string text;
    int32_t id;
};

static int compare_items(const void *left, const void *right)
{
    const struct sort_item *a = left, *b = right;
    int order = compare_texts(a->text, b->text);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

static int sort_specials(struct vocab *v, struct carat_error *err)
{
    size_t n = (size_t)v->n_specials, filled = 0;
    struct sort_item *items = mem_alloc(n, sizeof *items);
    v->sorted_specials = mem_alloc(n, sizeof *v->sorted_specials);
    if (!items || !v->sorted_specials) {
        mem_free(items);
        return err_no_memory(err, "special tokens", n * sizeof *items);
    }
    for (int32_t id = 0; id < v->count; id++)
        if (is_sought(v, id)) items[filled++] = (struct sort_item){v->tokens[id], id};
    qsort(items, n, sizeof *items, compare_items);
    v->n_specials = 0;
    for (size_t i = 0; i < n; i++) /* the first of duplicates counts */
        if (i == 0 || compare_texts(items[i - 1].text, items[i].text) != 0)
            v->sorted_specials[v->n_specials++] = items[i].id;
    mem_free(items);
    return CARAT_OK;
}

static int bad_merge(uint64_t i, struct gguf_string s, const char *what, struct carat_error *err)
{
    char shown[GGUF_PRINTABLE_BYTES];
    return err_set(err, CARAT_EFORMAT, "tokenizer.ggml.merges[%llu]: %s in \"%s\"",
                   (unsigned long long)i, what, gguf_printable(shown, s.data, s.length));
}

/* Whether a word and the space after it could become one token. */
static bool joins_words(struct gguf_string left, struct gguf_string right)
{
    static const char mark[] = "\xE2\x96\x81"; /* U+2581: a space in the vocabulary */
    enum { MARK = sizeof mark - 1 };
    bool ends_with_space =
        left.length >= MARK && memcmp(left.data + left.length - MARK, mark, MARK) == 0;
    return !ends_with_space && right.length >= MARK && memcmp(right.data, mark, MARK) == 0;
}

/* The look-ups of a merge: of its two pieces and of the token that they make. Each is three reads
 * of memory, one after the other, so those of some merges are made side by side. */
enum { MERGES_AT_ONCE = 16, LOOKUPS = 3 };
struct merge_lookups {
    struct two_parts text[LOOKUPS]; /* left, right, both */
    uint32_t slot[LOOKUPS];         /* the first */
};

/* Pieces hold no spaces but may begin with any byte, so the first space at index >= 1 splits. */
static int split_merge(const struct vocab *v, uint64_t i, struct gguf_string s,
                       struct merge_lookups *out, struct carat_error *err)
{
    if (s.length < 3) return bad_merge(i, s, "two pieces expected", err);
    const char *space = memchr(s.data + 1, ' ', s.length - 1);
    if (!space || space == s.data + s.length - 1)
        return bad_merge(i, s, "two pieces with a space between expected", err);
    struct gguf_string left = {s.data, (size_t)(space - s.data)};
    struct gguf_string right = {space + 1, s.length - left.length - 1}, none = {"", 0};
    if (left.length > TOKEN_BYTES_MAX || right.length > TOKEN_BYTES_MAX)
        return bad_merge(i, s, "a piece is too long", err);
    char both[2 * TOKEN_BYTES_MAX];
    memcpy(both, left.data, left.length);
    memcpy(both + left.length, right.data, right.length);
    *out = (struct merge_lookups){{{left, none}, {right, none}, {left, right}},
                                  {first_slot(v, left.data, left.length),
                                   first_slot(v, right.data, right.length),
                                   first_slot(v, both, left.length + right.length)}};
    return CARAT_OK;
}

/* Asks for what the look-ups of n merges will read: the slots, then the tokens in them, then the
 * texts of these. */
static void prefetch_merges(const struct vocab *v, const struct merge_lookups *merges, size_t n)
{
    for (size_t k = 0; k < n * LOOKUPS; k++)
        __builtin_prefetch(&v->slots[merges[k / LOOKUPS].slot[k % LOOKUPS]]);
    for (size_t k = 0; k < n * LOOKUPS; k++) {
        int32_t taken = v->slots[merges[k / LOOKUPS].slot[k % LOOKUPS]];
        if (taken) __builtin_prefetch(&v->tokens[taken - 1]);
    }
    for (size_t k = 0; k < n * LOOKUPS; k++) {
        int32_t taken = v->slots[merges[k / LOOKUPS].slot[k % LOOKUPS]];
        if (taken) __builtin_prefetch(v->tokens[taken - 1].data);
    }
}

static int add_merge(struct vocab *v, uint64_t i, struct gguf_string s,
                     const struct merge_lookups *merge, struct carat_error *err)
{
    int32_t id[LOOKUPS];
    for (int k = 0; k < LOOKUPS; k++) id[k] = *find_slot(v, merge->slot[k], &merge->text[k]) - 1;
    if (id[0] < 0 || id[1] < 0) return bad_merge(i, s, "a piece is not a token", err);
    if (id[2] < 0) return bad_merge(i, s, "the pieces together are not a token", err);
    if (v->classes[id[0]] != TOKEN_PLAIN || v->classes[id[1]] != TOKEN_PLAIN ||
        v->classes[id[2]] != TOKEN_PLAIN)
        return CARAT_OK; /* left out: text must never become a special token by merging */
    struct merge *m = find_merge(v, id[0], id[1]);
    if (joins_words(merge->text[2].a, merge->text[2].b)) v->joins_words = true;
    if (m->rank_plus_1 == 0) *m = (struct merge){id[0], id[1], id[2], (int32_t)i + 1};
    return CARAT_OK;
}

static int add_merges(struct vocab *v, const struct gguf_kv *kv, uint64_t first, size_t n,
                      struct carat_error *err)
{
    struct merge_lookups merges[MERGES_AT_ONCE];
    for (size_t k = 0; k < n; k++)
        TRY(split_merge(v, first + k, kv->strings[first + k], &merges[k], err));
    prefetch_merges(v, merges, n);
    for (size_t k = 0; k < n; k++)
        TRY(add_merge(v, first + k, kv->strings[first + k], &merges[k], err));
    return CARAT_OK;
}

static int read_merges(struct vocab *v, const struct gguf *g, struct carat_error *err)
{
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return err_set(err, CARAT_EFORMAT, "%s: missing", key);
    if (kv->type != GGUF_ARRAY || kv->element_type != GGUF_STRING)
        return err_set(err, CARAT_EFORMAT, "%s: an array of string expected", key);
    if (kv->count > MERGES_MAX)
        return err_set(err, CARAT_EFORMAT, "%s: at most %d merges expected, %llu found", key,
                       MERGES_MAX, (unsigned long long)kv->count);
    uint32_t n_slots = power_of_two_above((uint32_t)kv->count * 2);
    v->merge_mask = n_slots - 1;
    v->merges = mem_alloc(n_slots, sizeof *v->merges);
    if (!v->merges) return err_no_memory(err, "merges", n_slots * sizeof *v->merges);
    for (uint64_t i = 0; i < kv->count; i += MERGES_AT_ONCE) {
        uint64_t left = kv->count - i;
        TRY(add_merges(v, kv, i, left < MERGES_AT_ONCE ? (size_t)left : MERGES_AT_ONCE, err));
    }
    return CARAT_OK;
}

static void add_stop(struct vocab *v, int32_t id)
{
    if (id < 0 || vocab_is_stop(v, id) || v->n_stops == STOPS_MAX) return;
    v->stops[v->n_stops++] = id;
}

static int check_id(const struct vocab *v, const char *key, int64_t id, struct carat_error *err)
{
    if (id >= 0 && id < v->count) return CARAT_OK;
    return err_set(err, CARAT_EFORMAT, "%s: an id below %d expected, %lld found", key, v->count,
                   (long long)id);
}

/* A list of ids; if it is absent, *out is NULL. */
static int find_ids(const struct vocab *v, const struct gguf *g, const char *key,
                    const struct gguf_kv **out, struct carat_error *err)
{
    const struct gguf_kv *kv = *out = gguf_find(g, key);
    if (!kv) return CARAT_OK;
    if (kv->type != GGUF_ARRAY || (kv->element_type != GGUF_I32 && kv->element_type != GGUF_U32 &&
                                   kv->element_type != GGUF_I64 && kv->element_type != GGUF_U64))
        return err_set(err, CARAT_EFORMAT, "%s: an array of i32 expected", key);
    if (kv->count > ID_LIST_MAX)
        return err_set(err, CARAT_EFORMAT, "%s: at most %d ids expected, %llu found", key,
                       ID_LIST_MAX, (unsigned long long)kv->count);
    for (uint64_t i = 0; i < kv->count; i++) {
        char where[96];
        snprintf(where, sizeof where, "%s[%llu]", key, (unsigned long long)i);
        TRY(check_id(v, where, gguf_array_int(kv, i), err));
    }
    return CARAT_OK;
}

static int read_ids(struct vocab *v, const struct gguf *g, struct carat_error *err)
{
    static const struct {
        const char *key;
        bool is_stop;
    } keys[] = {
        {"tokenizer.ggml.bos_token_id", false},     {"tokenizer.ggml.eos_token_id", true},
        {"tokenizer.ggml.eot_token_id", true},      {"tokenizer.ggml.unknown_token_id", false},
        {"tokenizer.ggml.padding_token_id", false}, {"tokenizer.ggml.mask_token_id", false},
    };
    add_stop(v, v->specials[VOCAB_EOS]);
    add_stop(v, v->specials[VOCAB_TURN_END]);
    add_stop(v, v->specials[VOCAB_RESPONSE_BEGIN]);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!gguf_find(g, keys[i].key)) continue;
        uint32_t id = 0;
        TRY(gguf_get_u32(g, keys[i].key, &id, err));
        TRY(check_id(v, keys[i].key, id, err));
        if (keys[i].is_stop) add_stop(v, (int32_t)id);
    }
    const struct gguf_kv *list;
    TRY(find_ids(v, g, "tokenizer.ggml.eos_token_ids", &list, err));
    for (uint64_t i = 0; list && i < list->count; i++)
        add_stop(v, (int32_t)gguf_array_int(list, i));
    TRY(find_ids(v, g, "tokenizer.ggml.suppress_tokens", &list, err));
    if (!list || list->count == 0) return CARAT_OK;
    v->suppressed = mem_alloc(list->count, sizeof *v->suppressed);
    if (!v->suppressed) return err_no_memory(err, "suppressed tokens", list->count * 4);
    for (; v->n_suppressed < list->count; v->n_suppressed++)
        v->suppressed[v->n_suppressed] = (int32_t)gguf_array_int(list, v->n_suppressed);
    return CARAT_OK;
}

int vocab_open(struct vocab **out, const struct gguf *g, struct carat_error *err)
{
    *out = NULL;
    struct vocab *v = mem_alloc(1, sizeof *v);
    if (!v) return err_no_memory(err, "vocabulary", sizeof *v);
    v->key = hash_key_random();
    int status = check_model(v, g, err);
    if (status == CARAT_OK) status = read_tokens(v, g, err);
    if (status == CARAT_OK) status = sort_specials(v, err);
    if (status == CARAT_OK) status = read_merges(v, g, err);
    if (status == CARAT_OK) status = read_ids(v, g, err);
    if (status != CARAT_OK) {
        vocab_close(v);
        return status;
    }
    *out = v;
    return CARAT_OK;
}

void vocab_close(struct vocab *v)
{
    if (!v) return;
    mem_free(v->classes);
    mem_free(v->slots);
    mem_free(v->merges);
    mem_free(v->sorted_specials);
    mem_free(v->suppressed);
    mem_free(v);
}

/* ---- Questions -------------------------------------------------------------------------- */

static bool in_range(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->count;
}

int32_t vocab_count(const struct vocab *v)
{
    return v->count;
}

const char *vocab_piece(const struct vocab *v, int32_t id, size_t *length)
{
    *length = in_range(v, id) ? v->tokens[id].length : 0;
    return *length ? v->tokens[id].data : "";
}

enum token_class vocab_class(const struct vocab *v, int32_t id)
{
    return in_range(v, id) ? (enum token_class)v->classes[id] : TOKEN_CONTROL;
}

bool vocab_is_special(const struct vocab *v, int32_t id)
{
    enum token_class class = vocab_class(v, id);
    return class == TOKEN_CONTROL || class == TOKEN_USER_DEFINED;
}

bool vocab_is_stop(const struct vocab *v, int32_t id)
{
    for (size_t i = 0; i < v->n_stops; i++)
        if (v->stops[i] == id) return true;
    return false;
}

int32_t vocab_special(const struct vocab *v, enum vocab_special which)
{
    return v->specials[which];
}

const int32_t *vocab_suppressed(const struct vocab *v, size_t *count)
{
    *count = v->n_suppressed;
    return v->suppressed;
}

const char *vocab_note(const struct vocab *v)
{
    return v->note;
}

int32_t vocab_byte(const struct vocab *v, uint8_t byte)
{
    return v->bytes[byte];
}

uint8_t vocab_byte_value(const struct vocab *v, int32_t id)
{
    int byte = in_range(v, id) ? byte_of_text(v->tokens[id]) : 0;
    return byte < 0 ? 0 : (uint8_t)byte;
}

size_t vocab_longest_plain(const struct vocab *v)
{
    return v->longest_plain;
}

/* No token stands for more bytes than its text has: a space is one byte, U+2581 three. One position
 * is the answer's. */
int vocab_check_length(const struct vocab *v, size_t bytes, int32_t n_ctx, size_t *bytes_max,
                       struct carat_error *err)
{
    size_t most = n_ctx > 1 ? (size_t)(n_ctx - 1) * v->longest : 0;
    if (bytes_max) *bytes_max = most;
    if (bytes <= most) return CARAT_OK;
    err_set(
        err, CARAT_ECONTEXT,
        "prompt: %zu bytes or more found, but the context holds at most %d tokens of at most %zu "
        "bytes, which is %zu bytes",
        bytes, n_ctx > 1 ? n_ctx - 1 : 0, v->longest, most);
    err_hint(err, "take a shorter prompt, or a longer context (-c) as far as the model has one");
    return CARAT_ECONTEXT;
}
