#include "grammar/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"

enum { BYTES_MAX = 1 << 27 }; /* of all tokens; nodes of a tree are at most as many */

/* A text on its way into a tree. `key`: its first eight bytes as a number, which decides most
 * comparisons. */
struct item {
    uint64_t key;
    const uint8_t *text;
    uint32_t length;
    int32_t id;
    uint32_t group; /* plain characters before the text */
};

/* ---- Bytes of tokens -------------------------------------------------------------------- */

/* What a token adds to the text: the piece with its space marks as spaces. Returns its length. */
static uint32_t token_bytes(const struct vocab *v, int32_t id, uint8_t *out)
{
    static const char mark[] = "\xe2\x96\x81";
    size_t length;
    const char *piece = vocab_piece(v, id, &length);
    if (vocab_is_special(v, id)) return 0;
    if (vocab_class(v, id) == TOKEN_BYTE) {
        out[0] = vocab_byte_value(v, id);
        return 1;
    }
    uint32_t n = 0;
    for (size_t i = 0; i < length;) {
        bool is_space = length - i >= 3 && memcmp(piece + i, mark, 3) == 0;
        out[n++] = is_space ? ' ' : (uint8_t)piece[i];
        i += is_space ? 3 : 1;
    }
    return n;
}

static int read_tokens(struct token_index *x, const struct vocab *v, struct carat_error *err)
{
    size_t n = (size_t)x->n_vocab, total = 1, length;
    for (int32_t id = 0; id < x->n_vocab; id++) {
        vocab_piece(v, id, &length);
        total += length;
    }
    if (total > BYTES_MAX)
        return err_set(err, CARAT_EUNSUPPORTED,
                       "grammar: a vocabulary of at most %d bytes expected, %zu found", BYTES_MAX,
                       total);
    x->begin = mem_alloc(n + 1, sizeof *x->begin);
    x->bytes = mem_alloc(total, 1);
    x->is_stop = mem_alloc(n, 1);
    x->plain = mem_alloc(index_words(x), sizeof *x->plain);
    if (!x->begin || !x->bytes || !x->is_stop || !x->plain)
        return err_no_memory(err, "grammar", total + 5 * n);
    for (int32_t id = 0; id < x->n_vocab; id++) {
        uint32_t used = token_bytes(v, id, x->bytes + x->begin[id]);
        x->begin[id + 1] = x->begin[id] + used;
        if (used > x->longest) x->longest = used;
        x->is_stop[id] = vocab_is_stop(v, id);
        x->n_stops += x->is_stop[id];
    }
    x->stops = mem_alloc(x->n_stops, sizeof *x->stops);
    if (!x->stops) return err_no_memory(err, "grammar", x->n_stops * sizeof *x->stops);
    uint32_t n_stops = 0;
    for (int32_t id = 0; id < x->n_vocab; id++)
        if (x->is_stop[id]) x->stops[n_stops++] = id;
    x->channel_begin = vocab_special(v, VOCAB_CHANNEL_BEGIN);
    x->channel_end = vocab_special(v, VOCAB_CHANNEL_END);
    return CARAT_OK;
}

/* ---- Trees ------------------------------------------------------------------------------ */

static int compare_items(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    uint32_t n = a->length < b->length ? a->length : b->length;
    int order = n > 8 ? memcmp(a->text + 8, b->text + 8, n - 8) : 0;
    if (order) return order;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void set_key(struct item *item)
{
    item->key = 0;
    for (uint32_t i = 0; i < 8; i++)
        item->key = item->key << 8 | (i < item->length ? item->text[i] : 0);
}

/* Bytes that two neighbours have in common. */
static uint32_t common_length(const struct item *a, const struct item *b)
{
    uint32_t n = a->length < b->length ? a->length : b->length, i = 0;
    while (i < n && a->text[i] == b->text[i]) i++;
    return i;
}

/* A range of sorted items that share their first `depth` bytes, and the node for them. */
struct branch {
    uint32_t node, begin, end, depth;
};

/* Makes the children of a branch's node, and a branch for each, the last one first. */
static uint32_t add_children(struct token_tree *t, const struct item *items, struct branch b,
                             struct branch *open, uint32_t n_open)
{
    struct tree_node *node = &t->nodes[b.node];
    uint32_t i = b.begin;
    while (i < b.end && items[i].length == b.depth) i++;
    node->first_id = b.begin;
    node->n_ids = i - b.begin;
    node->first_child = t->n_nodes;
    uint32_t first_open = n_open;
    while (i < b.end) {
        uint8_t byte = items[i].text[b.depth];
        uint32_t end = i;
        while (end < b.end && items[end].text[b.depth] == byte) end++;
        open[n_open++] =
            (struct branch){.node = t->n_nodes, .begin = i, .end = end, .depth = b.depth + 1};
        t->nodes[t->n_nodes++] = (struct tree_node){.byte = byte};
        node->n_children++;
        i = end;
    }
    for (uint32_t low = first_open, high = n_open; low + 1 < high; low++) {
        struct branch swapped = open[low];
        open[low] = open[--high];
        open[high] = swapped;
    }
    return n_open;
}

/* A tree of sorted items. Nodes of a subtree lie close together. */
static int build_tree(struct token_tree *t, const struct item *items, uint32_t n,
                      struct carat_error *err)
{
    size_t n_nodes = 1, deepest = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_nodes += items[i].length - (i ? common_length(&items[i - 1], &items[i]) : 0);
        if (items[i].length > deepest) deepest = items[i].length;
    }
    /* Siblings wait while the search is below one of them. */
    struct branch *open = mem_alloc(256 * (deepest + 1), sizeof *open);
    t->nodes = mem_alloc(n_nodes, sizeof *t->nodes);
    t->ids = mem_alloc(n, sizeof *t->ids);
    if (!open || !t->nodes || !t->ids) {
        mem_free(open);
        return err_no_memory(err, "grammar", n_nodes * sizeof *t->nodes);
    }
    for (uint32_t i = 0; i < n; i++) t->ids[i] = items[i].id;
    t->n_nodes = 1;
    t->n_ids = n;
    open[0] = (struct branch){.end = n};
    for (uint32_t n_open = 1; n_open > 0;) {
        struct branch b = open[--n_open];
        n_open = add_children(t, items, b, open, n_open);
    }
    mem_free(open);
    return CARAT_OK;
}

/* ---- Plain characters ------------------------------------------------------------------- */

/* Bytes of the plain characters at the beginning of a text, and their number, up to PLAIN_MAX. */
static uint32_t plain_prefix(const uint8_t *text, uint32_t length, uint32_t *count)
{
    uint32_t at = 0, c;
    *count = 0;
    while (at < length && *count < PLAIN_MAX) {
        int n = utf8_read((const char *)text + at, length - at, &c);
        if (n == 0 || c < 0x20 || c == '"' || c == '\\' || c == 0x7F) break;
        at += (uint32_t)n;
        ++*count;
    }
    return at;
}

/* Sets `plain` and cuts the items of all other tokens to what follows; returns how many those are.
 * They come first in `items`. */
static uint32_t divide(struct token_index *x, struct item *items, uint32_t n, uint8_t *counts)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct item item = items[i];
        uint32_t count, used = plain_prefix(item.text, item.length, &count);
        counts[item.id] = 0;
        if (used == item.length) {
            x->plain[item.id / 64] |= (uint64_t)1 << item.id % 64;
            x->plain_begin[count + 1]++;
            counts[item.id] = (uint8_t)count;
            continue;
        }
        item.text += used;
        item.length -= used;
        item.group = count;
        set_key(&item);
        items[kept++] = item;
    }
    return kept;
}

/* plain_begin holds numbers, each one place later. They become sums, and the ids get places. */
static int list_plain(struct token_index *x, const uint8_t *counts, struct carat_error *err)
{
    uint32_t next[PLAIN_MAX + 2];
    for (uint32_t n = 1; n < PLAIN_MAX + 2; n++) x->plain_begin[n] += x->plain_begin[n - 1];
    memcpy(next, x->plain_begin, sizeof next);
    x->plain_ids = mem_alloc(x->plain_begin[PLAIN_MAX + 1], sizeof *x->plain_ids);
    if (!x->plain_ids) return err_no_memory(err, "grammar", (size_t)x->n_vocab * 4);
    for (int32_t id = 0; id < x->n_vocab; id++)
        if (counts[id]) x->plain_ids[next[counts[id]]++] = id;
    return CARAT_OK;
}

static int build_rests(struct token_index *x, struct item *items, uint32_t n,
                       struct carat_error *err)
{
    qsort(items, n, sizeof *items, compare_items);
    for (uint32_t group = 0, i = 0; group <= PLAIN_MAX; group++) {
        uint32_t begin = i;
        while (i < n && items[i].group == group) i++;
        TRY(build_tree(&x->rests[group], items + begin, i - begin, err));
    }
    for (uint32_t i = 0; i < n; i++) items[i].group = 0;
    qsort(items, n, sizeof *items, compare_items);
    return build_tree(&x->rest, items, n, err);
}

static int build(struct token_index *x, struct item *items, uint8_t *counts,
                 struct carat_error *err)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < x->n_vocab; id++) {
        uint32_t length = x->begin[id + 1] - x->begin[id];
        if (length == 0) continue;
        items[n] = (struct item){.text = x->bytes + x->begin[id], .length = length, .id = id};
        set_key(&items[n++]);
    }
    qsort(items, n, sizeof *items, compare_items);
    TRY(build_tree(&x->all, items, n, err));
    n = divide(x, items, n, counts);
    TRY(list_plain(x, counts, err));
    return build_rests(x, items, n, err);
}

int index_open(struct token_index **out, const struct vocab *vocab, struct carat_error *err)
{
    *out = NULL;
    struct token_index *x = mem_alloc(1, sizeof *x);
    if (!x) return err_no_memory(err, "grammar", sizeof *x);
    x->n_vocab = vocab_count(vocab);
    struct item *items = mem_alloc((size_t)x->n_vocab, sizeof *items);
    uint8_t *counts = mem_alloc((size_t)x->n_vocab, 1);
    int status = CARAT_OK;
    if (!items || !counts)
        status = err_no_memory(err, "grammar", (size_t)x->n_vocab * sizeof *items);
    if (!status) status = read_tokens(x, vocab, err);
    if (!status) status = build(x, items, counts, err);
    mem_free(items);
    mem_free(counts);
    if (status)
        index_close(x);
    else
        *out = x;
    return status;
}

static void tree_deinit(struct token_tree *t)
{
    mem_free(t->nodes);
    mem_free(t->ids);
}

void index_close(struct token_index *x)
{
    if (!x) return;
    mem_free(x->begin);
    mem_free(x->bytes);
    mem_free(x->is_stop);
    mem_free(x->stops);
    mem_free(x->plain);
    mem_free(x->plain_ids);
    tree_deinit(&x->all);
    tree_deinit(&x->rest);
    for (uint32_t i = 0; i <= PLAIN_MAX; i++) tree_deinit(&x->rests[i]);
    mem_free(x);
}
