#include "grammar/grammar.h"

#include <string.h>

#include "base/mem.h"
#include "grammar/left.h"
#include "grammar/lower.h"

enum { COSTLY_NODES = 1000 }; /* a mask that took a walk over more of them is remembered */

static int compile(carat_grammar *g, const struct expr_builder *b, int32_t root,
                   struct carat_error *err)
{
    TRY(lower_rules(&g->program, b, root, err));
    TRY(program_analyse(&g->program, err));
    TRY(left_rewrite(&g->program, err));
    return program_finish(&g->program, err);
}

static int take_memory(carat_grammar *g, struct carat_error *err)
{
    size_t words = index_words(g->index);
    TRY(machine_open(&g->machine, &g->program, err));
    TRY(masker_open(&g->masker, g->machine, g->index, err));
    uint64_t *bits = mem_alloc(GRAMMAR_MASKS * words, sizeof *bits);
    if (!bits) return err_no_memory(err, "grammar", GRAMMAR_MASKS * words * sizeof *bits);
    for (unsigned i = 0; i < GRAMMAR_MASKS; i++) g->masks[i].bits = bits + i * words;
    g->start.at = machine_start(g->machine);
    if (g->start.at < MACHINE_FIRST || machine_was_cut(g->machine))
        return err_set(
            err, CARAT_EUNSUPPORTED,
            "the grammar is too large: at most %d alternatives at its beginning expected",
            MACHINE_WIDTH_MAX);
    return CARAT_OK;
}

int grammar_open(carat_grammar **out, const struct expr_builder *b, int32_t root,
                 const struct token_index *index, const struct grammar_options *options,
                 struct carat_error *err)
{
    *out = NULL;
    carat_grammar *g = mem_alloc(1, sizeof *g);
    if (!g) return err_no_memory(err, "grammar", sizeof *g);
    g->index = index;
    g->options = *options;
    pthread_mutex_init(&g->lock, NULL);
    int status = compile(g, b, root, err);
    if (!status) status = take_memory(g, err);
    if (status)
        grammar_close(g);
    else
        *out = g;
    return status;
}

void grammar_close(carat_grammar *g)
{
    if (!g) return;
    mem_free(g->masks[0].bits);
    masker_close(g->masker);
    machine_close(g->machine);
    program_deinit(&g->program);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

void grammar_add_user(carat_grammar *g, struct grammar_user *user)
{
    pthread_mutex_lock(&g->lock);
    *user = (struct grammar_user){.next = g->users, .at = g->start.at};
    if (g->users) g->users->previous = user;
    g->users = user;
    pthread_mutex_unlock(&g->lock);
}

void grammar_return(carat_grammar *g, struct grammar_user *user)
{
    pthread_mutex_lock(&g->lock);
    user->at = g->start.at;
    pthread_mutex_unlock(&g->lock);
}

void grammar_remove_user(carat_grammar *g, struct grammar_user *user)
{
    pthread_mutex_lock(&g->lock);
    if (user->next) user->next->previous = user->previous;
    if (user->previous)
        user->previous->next = user->next;
    else
        g->users = user->next;
    pthread_mutex_unlock(&g->lock);
}

/* ---- Under the lock --------------------------------------------------------------------- */

/* Keeps only what the users need. */
static void compact(carat_grammar *g)
{
    machine_mark(g->machine, g->start.at);
    for (struct grammar_user *u = g->users; u; u = u->next) machine_mark(g->machine, u->at);
    machine_compact(g->machine);
    g->start.at = machine_moved(g->machine, g->start.at);
    for (struct grammar_user *u = g->users; u; u = u->next)
        u->at = machine_moved(g->machine, u->at);
    for (unsigned i = 0; i < GRAMMAR_MASKS; i++)
        g->masks[i].at = machine_moved(g->machine, g->masks[i].at);
    machine_forget_marks(g->machine);
}

/* The place after the bytes of a token; a special one has none, and leads nowhere. */
static uint32_t step_bytes(carat_grammar *g, uint32_t at, int32_t id)
{
    const struct token_index *x = g->index;
    if (x->begin[id] == x->begin[id + 1]) return MACHINE_DEAD;
    for (uint32_t i = x->begin[id]; i < x->begin[id + 1] && at >= MACHINE_FIRST; i++)
        at = machine_byte(g->machine, at, x->bytes[i]);
    return at;
}

static uint32_t step(carat_grammar *g, uint32_t at, int32_t id)
{
    uint32_t by_bytes = step_bytes(g, at, id);
    if (by_bytes == MACHINE_FULL || !machine_state(g->machine, at)->has_tokens) return by_bytes;
    uint32_t by_id = machine_token(g->machine, at, id, g->index->is_stop[id]);
    return by_id == MACHINE_FULL ? by_id : machine_either(g->machine, by_bytes, by_id);
}

static struct cached_mask *find_mask(carat_grammar *g, uint32_t at)
{
    struct cached_mask *oldest = &g->masks[0];
    for (unsigned i = 0; i < GRAMMAR_MASKS; i++) {
        if (g->masks[i].at == at) return &g->masks[i];
        if (g->masks[i].last_use < oldest->last_use) oldest = &g->masks[i];
    }
    return oldest;
}

/* Fills the mask in; remembers it if it was costly. Returns false when the machine is full. */
static bool fill(carat_grammar *g, uint32_t at, uint64_t *bits)
{
    size_t bytes = index_words(g->index) * sizeof *bits;
    struct cached_mask *mask = find_mask(g, at);
    if (mask->at == at) {
        mask->last_use = ++g->n_uses;
        memcpy(bits, mask->bits, bytes);
        return true;
    }
    mask->at = 0;
    uint64_t cost = masker_fill(g->masker, at, mask->bits);
    if (cost == 0) return false;
    memcpy(bits, mask->bits, bytes);
    mask->last_use = cost > COSTLY_NODES ? ++g->n_uses : 0;
    mask->at = at;
    return true;
}

/* ---- Calls ------------------------------------------------------------------------------ */

enum grammar_answer grammar_step(carat_grammar *g, struct grammar_user *user, int32_t id,
                                 bool moves)
{
    if (id < 0 || id >= g->index->n_vocab) return GRAMMAR_NO;
    pthread_mutex_lock(&g->lock);
    uint32_t next = step(g, user->at, id);
    if (next == MACHINE_FULL) {
        compact(g);
        next = step(g, user->at, id);
    }
    if (moves && next >= MACHINE_FIRST) user->at = next;
    pthread_mutex_unlock(&g->lock);
    return next == MACHINE_FULL ? GRAMMAR_FULL : next == MACHINE_DEAD ? GRAMMAR_NO : GRAMMAR_YES;
}

bool grammar_is_complete(carat_grammar *g, const struct grammar_user *user)
{
    pthread_mutex_lock(&g->lock);
    bool is_complete = machine_state(g->machine, user->at)->is_complete;
    pthread_mutex_unlock(&g->lock);
    return is_complete;
}

bool grammar_mask(carat_grammar *g, const struct grammar_user *user, uint64_t *bits)
{
    pthread_mutex_lock(&g->lock);
    bool is_filled = fill(g, user->at, bits);
    if (!is_filled) {
        compact(g);
        is_filled = fill(g, user->at, bits);
    }
    pthread_mutex_unlock(&g->lock);
    return is_filled;
}

/* ---- What is likely to come ------------------------------------------------------------- */

enum { EXPECTED_MAX = 96 /* bytes */ };

static bool is_blank(int byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* The byte that comes next if blanks only stand where most people write one, after a colon and a
 * comma of what is no free text; -1: there is a choice. */
static int likely_byte(const struct machine_state *state, int last)
{
    enum { BEGINNINGS = 20 }; /* of values in JSON: fewer bytes than free text takes */
    int byte = -1, n = 0;
    if (state->is_complete || state->has_tokens) return -1;
    for (int word = 0; word < 4; word++)
        for (uint64_t left = state->bytes[word]; left; left &= left - 1) {
            int next = word * 64 + __builtin_ctzll(left);
            if (is_blank(next)) continue;
            if (++n > BEGINNINGS) return -1;
            byte = next;
        }
    bool takes_space = state->bytes[0] >> ' ' & 1;
    if (takes_space && (last == ':' || last == ',')) return ' ';
    return n == 1 ? byte : -1;
}

static uint32_t likely_bytes(carat_grammar *g, uint32_t at, int last, uint8_t *bytes)
{
    uint32_t n = 0;
    while (n < EXPECTED_MAX) {
        last = likely_byte(machine_state(g->machine, at), last);
        at = last < 0 ? MACHINE_DEAD : machine_byte(g->machine, at, (uint8_t)last);
        if (at < MACHINE_FIRST) break;
        bytes[n++] = (uint8_t)last;
    }
    return n;
}

static const struct tree_node *child_of(const struct token_tree *tree, const struct tree_node *node,
                                        uint8_t byte)
{
    const struct tree_node *child = tree->nodes + node->first_child;
    for (uint32_t i = 0; i < node->n_children; i++)
        if (child[i].byte == byte) return &child[i];
    return NULL;
}

/* The longest token that these bytes begin with, and its length; 0: there is none. Of tokens of the
 * same bytes the last one: those that stand for single bytes come first. */
static uint32_t longest_token(const struct token_tree *tree, const uint8_t *bytes, uint32_t n,
                              int32_t *id)
{
    uint32_t longest = 0;
    const struct tree_node *node = tree->nodes;
    for (uint32_t i = 0; i < n && (node = child_of(tree, node, bytes[i])); i++) {
        if (node->n_ids == 0) continue;
        longest = i + 1;
        *id = tree->ids[node->first_id + node->n_ids - 1];
    }
    return longest;
}

int32_t grammar_expect(carat_grammar *g, const struct grammar_user *user, int32_t last,
                       int32_t *ids, int32_t most)
{
    uint8_t bytes[EXPECTED_MAX];
    const struct token_index *x = g->index;
    bool has_bytes = last >= 0 && last < x->n_vocab && x->begin[last] < x->begin[last + 1];
    int before = has_bytes ? x->bytes[x->begin[last + 1] - 1] : 0;
    pthread_mutex_lock(&g->lock);
    uint32_t n = likely_bytes(g, user->at, before, bytes), at = 0;
    pthread_mutex_unlock(&g->lock);
    int32_t count = 0;
    for (uint32_t length; count < most && at < n; at += length, count++) {
        length = longest_token(&x->all, bytes + at, n - at, &ids[count]);
        if (length == 0) break;
    }
    return count;
}
