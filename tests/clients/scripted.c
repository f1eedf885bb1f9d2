/* Answers that a small model cannot give. In the program carat_scripted, which exists for tests
 * alone, a request may have the member "x_carat_script": token ids, or an array of them for each
 * answer, which the model then prefers to everything else that its grammar allows. With
 * "x_carat_delay", milliseconds, each token takes that long.
 *
 * The linker puts these functions in front of the server's own (--wrap). Reading a request and
 * opening its answers happen in one thread, so the script waits in between in a variable of that
 * thread. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "server/generation.h"

enum { IDS_MAX = 65536, ANSWERS_MAX = 8 };

struct script {
    struct script *next; /* of all, so that nothing counts as lost */
    int32_t *ids;        /* [n] */
    size_t n, n_prompt;
    int32_t delay; /* of each token, in milliseconds */
};

static _Thread_local struct script *waiting[ANSWERS_MAX];
static struct script *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

int __real_ask_read(struct ask *ask, enum api api, const char *body, size_t length,
                    const struct carat_sampling *defaults, const struct ask_limits *limits,
                    struct carat_error *err);
int __wrap_ask_read(struct ask *ask, enum api api, const char *body, size_t length,
                    const struct carat_sampling *defaults, const struct ask_limits *limits,
                    struct carat_error *err);
int __real_generation_open(struct generation *g, const carat_model *model, const struct ask *ask,
                           const struct prompt *prompt, const carat_grammar *grammar,
                           int32_t number, struct carat_error *err);
int __wrap_generation_open(struct generation *g, const carat_model *model, const struct ask *ask,
                           const struct prompt *prompt, const carat_grammar *grammar,
                           int32_t number, struct carat_error *err);

static struct script *keep(struct script s)
{
    struct script *kept = mem_alloc(1, sizeof *kept);
    if (!kept) return NULL;
    *kept = s;
    pthread_mutex_lock(&all_lock);
    kept->next = all;
    all = kept;
    pthread_mutex_unlock(&all_lock);
    return kept;
}

/* Lives as long as the process. */
static struct script *script_of(const struct carat_value *list, const struct carat_value *delay)
{
    struct script s = {.delay = delay->kind == CARAT_INT ? (int32_t)delay->as.integer : 0};
    size_t count = list->kind == CARAT_ARRAY ? list->as.array.count : 0;
    if (count > IDS_MAX) return NULL;
    s.ids = mem_alloc(count + 1, sizeof *s.ids);
    if (!s.ids) return NULL;
    for (size_t i = 0; i < count; i++)
        if (list->as.array.items[i].kind == CARAT_INT)
            s.ids[s.n++] = (int32_t)list->as.array.items[i].as.integer;
    return keep(s);
}

static void read_scripts(const char *body, size_t length)
{
    struct json_tree tree;
    for (int i = 0; i < ANSWERS_MAX; i++) waiting[i] = NULL;
    if (!memmem(body, length, "x_carat_", 8)) return;
    if (json_tree_read(&tree, body, length, JSON_PLAIN, NULL) != CARAT_OK) return;
    const struct carat_value *list = json_member(&tree.root, "x_carat_script");
    const struct carat_value *delay = json_member(&tree.root, "x_carat_delay");
    bool is_nested = list->kind == CARAT_ARRAY && list->as.array.count > 0 &&
                     list->as.array.items[0].kind == CARAT_ARRAY;
    for (size_t i = 0; i < ANSWERS_MAX; i++) {
        if (is_nested && i >= list->as.array.count) break;
        waiting[i] = script_of(is_nested ? &list->as.array.items[i] : list, delay);
    }
    json_tree_free(&tree);
}

int __wrap_ask_read(struct ask *ask, enum api api, const char *body, size_t length,
                    const struct carat_sampling *defaults, const struct ask_limits *limits,
                    struct carat_error *err)
{
    read_scripts(body, length);
    return __real_ask_read(ask, api, body, length, defaults, limits, err);
}

/* What a grammar forbids is masked afterwards, so a script cannot break one. */
static void prefer(void *user, const int32_t *ids, size_t n_ids, float *logits, int32_t n_vocab)
{
    const struct script *s = user;
    struct timespec pause = {.tv_sec = s->delay / 1000, .tv_nsec = s->delay % 1000 * 1000000L};
    size_t at = n_ids - s->n_prompt;
    (void)ids;
    if (s->delay > 0) nanosleep(&pause, NULL);
    if (at < s->n && s->ids[at] >= 0 && s->ids[at] < n_vocab) logits[s->ids[at]] = 1e4f;
}

int __wrap_generation_open(struct generation *g, const carat_model *model, const struct ask *ask,
                           const struct prompt *prompt, const carat_grammar *grammar,
                           int32_t number, struct carat_error *err)
{
    int status = __real_generation_open(g, model, ask, prompt, grammar, number, err);
    struct script *s = number < ANSWERS_MAX ? waiting[number] : NULL;
    if (status != CARAT_OK || !s) return status;
    s->n_prompt = prompt->n;
    g->job.request.on_logits = prefer;
    g->job.request.on_logits_user = s;
    return status;
}
