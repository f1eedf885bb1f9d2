#include "server/grammars.h"

#include <pthread.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "json/json_tree.h"

enum { GRAMMARS_MAX = 32, KEY_MAX = 1 << 20 }; /* a larger request is not kept */

struct kept {
    char *key; /* owned: what the grammar depends on; NULL: a free place */
    size_t length;
    carat_grammar *grammar;
    int32_t users;
    uint64_t last; /* when it was taken, in takes */
};

struct grammars {
    const carat_model *model;
    pthread_mutex_t lock;
    struct kept kept[GRAMMARS_MAX];
    uint64_t takes;
};

/* ---- Keys --------------------------------------------------------------------------------- */

static void add_bytes(struct buf *key, const char *data, size_t length)
{
    buf_add(key, &length, sizeof length);
    buf_add(key, data, length);
}

/* Each kind begins with itself and its size, so different values have different bytes. */
static void add_value(struct buf *key, const struct carat_value *v)
{
    buf_add_char(key, (char)('0' + (int)v->kind));
    switch (v->kind) {
    case CARAT_NULL: break;
    case CARAT_BOOL: buf_add_char(key, v->as.boolean ? '1' : '0'); break;
    case CARAT_INT: buf_add(key, &v->as.integer, sizeof v->as.integer); break;
    case CARAT_REAL: buf_add(key, &v->as.real, sizeof v->as.real); break;
    case CARAT_STRING: add_bytes(key, v->as.string.data, v->as.string.length); break;
    case CARAT_ARRAY:
        buf_add(key, &v->as.array.count, sizeof v->as.array.count);
        for (size_t i = 0; i < v->as.array.count; i++) add_value(key, &v->as.array.items[i]);
        break;
    case CARAT_OBJECT:
        buf_add(key, &v->as.object.count, sizeof v->as.object.count);
        for (size_t i = 0; i < v->as.object.count; i++) {
            const struct carat_member *m = &v->as.object.members[i];
            add_bytes(key, m->key.data, m->key.length);
            add_value(key, &m->value);
        }
        break;
    }
}

/* All that carat_grammar_open_chat reads. False: nothing is to be kept, because it will make no
 * grammar of the request, or because the key is too long. */
static bool add_key(struct buf *key, const struct carat_value *request)
{
    static const char *const members[] = {
        "tools",       "response_format",     "json_schema",    "grammar",
        "tool_choice", "parallel_tool_calls", "enable_thinking"};
    enum { MAKE_ONE = 4 }; /* of these members */
    bool makes_one = false;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const struct carat_value *value = json_member(request, members[i]);
        if (i < MAKE_ONE) makes_one = makes_one || value->kind != CARAT_NULL;
        add_value(key, value);
    }
    return makes_one && !key->failed && key->length <= KEY_MAX;
}

/* ---- Places: with the lock ---------------------------------------------------------------- */

static struct kept *find(struct grammars *s, const struct buf *key)
{
    for (int i = 0; i < GRAMMARS_MAX; i++) {
        struct kept *k = &s->kept[i];
        if (k->key && k->length == key->length && memcmp(k->key, key->data, key->length) == 0)
            return k;
    }
    return NULL;
}

/* A free place, or that of the grammar without users that was taken longest ago. */
static struct kept *make_place(struct grammars *s)
{
    struct kept *oldest = NULL;
    for (int i = 0; i < GRAMMARS_MAX; i++) {
        struct kept *k = &s->kept[i];
        if (!k->key) return k;
        if (k->users == 0 && (!oldest || k->last < oldest->last)) oldest = k;
    }
    if (!oldest) return NULL;
    mem_free(oldest->key);
    carat_grammar_close(oldest->grammar);
    *oldest = (struct kept){0};
    return oldest;
}

static carat_grammar *use(struct grammars *s, struct kept *k)
{
    k->users++;
    k->last = ++s->takes;
    return k->grammar;
}

/* Another thread may have made the same one meanwhile: then that one is taken. */
static carat_grammar *keep(struct grammars *s, const struct buf *key, carat_grammar *made)
{
    struct kept *k = find(s, key);
    if (k) {
        carat_grammar_close(made);
        return use(s, k);
    }
    k = make_place(s);
    char *copy = k ? mem_copy_text(key->data, key->length) : NULL;
    if (!copy) return made; /* its user's alone */
    *k = (struct kept){.key = copy, .length = key->length, .grammar = made};
    return use(s, k);
}

/* ---- Taking and giving -------------------------------------------------------------------- */

int grammars_open(struct grammars **out, const carat_model *model, struct carat_error *err)
{
    *out = mem_alloc(1, sizeof **out);
    if (!*out) return err_no_memory(err, "grammars", sizeof **out);
    (*out)->model = model;
    pthread_mutex_init(&(*out)->lock, NULL);
    return CARAT_OK;
}

void grammars_close(struct grammars *s)
{
    if (!s) return;
    for (int i = 0; i < GRAMMARS_MAX; i++) {
        mem_free(s->kept[i].key);
        carat_grammar_close(s->kept[i].grammar);
    }
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static int take_keyed(struct grammars *s, const struct carat_value *request, const struct buf *key,
                      carat_grammar **out, struct carat_error *err)
{
    pthread_mutex_lock(&s->lock);
    struct kept *k = find(s, key);
    if (k) *out = use(s, k);
    pthread_mutex_unlock(&s->lock);
    if (k) return CARAT_OK;
    TRY(carat_grammar_open_chat(out, s->model, request, err));
    if (!*out) return CARAT_OK;
    pthread_mutex_lock(&s->lock);
    *out = keep(s, key, *out);
    pthread_mutex_unlock(&s->lock);
    return CARAT_OK;
}

int grammars_take(struct grammars *s, const struct carat_value *request, carat_grammar **out,
                  struct carat_error *err)
{
    struct buf key = {0};
    *out = NULL;
    int status = add_key(&key, request) ? take_keyed(s, request, &key, out, err)
                                        : carat_grammar_open_chat(out, s->model, request, err);
    buf_deinit(&key);
    return status;
}

void grammars_give(struct grammars *s, carat_grammar *grammar)
{
    struct kept *found = NULL;
    if (!grammar) return;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < GRAMMARS_MAX && !found; i++)
        if (s->kept[i].grammar == grammar) found = &s->kept[i];
    if (found) found->users--;
    pthread_mutex_unlock(&s->lock);
    if (!found) carat_grammar_close(grammar);
}
