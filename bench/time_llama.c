/* Runs llama.cpp through its shared library, opened at run time.
 *
 *   time-llama DIR MODEL.gguf THREADS pp|tg N DEPTH       for compare_llama.py
 *   time-llama DIR MODEL.gguf THREADS greedy N ID,ID,...  to compare answers
 *
 * prints tokens a second of one run after an uncounted warm-up, or the N ids that follow a prompt
 * when the likeliest is taken each time. The functions of the library fill in its structs. This
 * program knows only the few leading fields that it changes (n_ctx, n_batch, n_ubatch of the
 * context parameters). */
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 2048, UBATCH = 512, ROOM = 64, WARM_UP = 32 /* tokens, uncounted */ };

/* Larger than the library's parameter structs, passed and returned by value in memory. */
struct params {
    unsigned char bytes[1024];
};

struct batch {
    int32_t n_tokens;
    int32_t *token;
    float *embd;
    int32_t *pos, *n_seq_id;
    int32_t **seq_id;
    int8_t *logits;
};

struct llama {
    void *library, *model, *context;
    int32_t (*decode)(void *context, struct batch batch);
    struct batch (*batch_of)(int32_t *tokens, int32_t n);
    void (*synchronize)(void *context);
    void *(*memory_of)(const void *context);
    void (*memory_clear)(void *memory, _Bool data);
};

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "time-llama: %s: %s\n", what, detail ? detail : "");
    exit(1);
}

/* A function of the library; POSIX makes the object pointer a function pointer. */
static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    if (!symbol) fail("symbol not found", name);
    memcpy(function, &symbol, sizeof symbol);
}

static void ignore_log(int level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

static void *open_library(const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) fail("cannot open", folder);
    char path[4096] = "";
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "libllama.", 9) == 0 || strcmp(e->d_name, "libllama.so") == 0)
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    closedir(d);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) fail("cannot load libllama", dlerror());
    return library;
}

static void open_model(struct llama *l, const char *folder, const char *path, int threads,
                       uint32_t n_ctx)
{
    struct params (*model_defaults)(void), (*context_defaults)(void);
    void *(*load)(const char *, struct params), *(*init)(void *, struct params);
    void (*set_threads)(void *, int32_t, int32_t), (*backend_init)(void);
    void (*set_log)(void (*)(int, const char *, void *), void *), (*load_backends)(const char *);
    l->library = open_library(folder);
    find(l->library, "llama_log_set", &set_log);
    set_log(ignore_log, NULL);
    void *symbol = dlsym(RTLD_DEFAULT, "ggml_backend_load_all_from_path");
    if (symbol) {
        memcpy(&load_backends, &symbol, sizeof symbol);
        load_backends(folder);
    }
    find(l->library, "llama_backend_init", &backend_init);
    find(l->library, "llama_model_default_params", &model_defaults);
    find(l->library, "llama_context_default_params", &context_defaults);
    find(l->library, "llama_model_load_from_file", &load);
    find(l->library, "llama_init_from_model", &init);
    find(l->library, "llama_set_n_threads", &set_threads);
    find(l->library, "llama_decode", &l->decode);
    find(l->library, "llama_batch_get_one", &l->batch_of);
    find(l->library, "llama_synchronize", &l->synchronize);
    find(l->library, "llama_get_memory", &l->memory_of);
    find(l->library, "llama_memory_clear", &l->memory_clear);
    backend_init();
    l->model = load(path, model_defaults());
    if (!l->model) fail("cannot load", path);
    struct params p = context_defaults();
    uint32_t sizes[3] = {n_ctx, BATCH, UBATCH};
    memcpy(p.bytes, sizes, sizeof sizes);
    l->context = init(l->model, p);
    if (!l->context) fail("cannot make a context of", path);
    set_threads(l->context, threads, threads);
}

static void process(struct llama *l, int32_t *tokens, int32_t n, int32_t at_once)
{
    for (int32_t done = 0; done < n; done += at_once) {
        int32_t left = n - done < at_once ? n - done : at_once;
        if (l->decode(l->context, l->batch_of(tokens + done, left))) fail("decode", "failed");
        l->synchronize(l->context);
    }
}

static double run(struct llama *l, int32_t *tokens, int32_t n, int32_t depth, int32_t at_once)
{
    struct timespec a, b;
    l->memory_clear(l->memory_of(l->context), 1);
    process(l, tokens, depth, BATCH);
    clock_gettime(CLOCK_MONOTONIC, &a);
    process(l, tokens + depth, n, at_once);
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

static void print_greedy(struct llama *l, char *prompt, int32_t n)
{
    float *(*logits_at)(void *, int32_t);
    const void *(*vocab_of)(const void *);
    int32_t (*vocab_size)(const void *);
    find(l->library, "llama_get_logits_ith", &logits_at);
    find(l->library, "llama_model_get_vocab", &vocab_of);
    find(l->library, "llama_vocab_n_tokens", &vocab_size);
    int32_t n_vocab = vocab_size(vocab_of(l->model)), n_prompt = 0;
    int32_t *ids = malloc((strlen(prompt) + 1) * sizeof *ids);
    if (!ids) fail("no memory", NULL);
    for (char *word = strtok(prompt, ","); word; word = strtok(NULL, ","))
        ids[n_prompt++] = atoi(word);
    process(l, ids, n_prompt, BATCH);
    for (int32_t i = 0; i < n; i++) {
        const float *row = logits_at(l->context, -1);
        int32_t best = 0;
        for (int32_t id = 1; id < n_vocab; id++)
            if (row[id] > row[best]) best = id;
        printf("%d%c", best, i == n - 1 ? '\n' : ',');
        process(l, &best, 1, 1);
    }
    free(ids);
}

int main(int argc, char **argv)
{
    if (argc != 7) fail("usage", "time-llama DIR MODEL THREADS pp|tg|greedy N DEPTH|IDS");
    if (strcmp(argv[4], "greedy") == 0) {
        struct llama l = {0};
        open_model(&l, argv[1], argv[2], atoi(argv[3]), 1024);
        print_greedy(&l, argv[6], atoi(argv[5]));
        return 0;
    }
    int32_t n = atoi(argv[5]), depth = atoi(argv[6]);
    int32_t at_once = strcmp(argv[4], "pp") == 0 ? BATCH : 1;
    struct llama l = {0};
    open_model(&l, argv[1], argv[2], atoi(argv[3]), (uint32_t)(n + depth + ROOM));
    int32_t *tokens = malloc((size_t)(n + depth) * sizeof *tokens);
    if (!tokens) fail("no memory", NULL);
    srand(1);
    for (int32_t i = 0; i < n + depth; i++) tokens[i] = 300 + rand() % 200000;
    run(&l, tokens, n < WARM_UP ? n : WARM_UP, 0, at_once);
    printf("%.4f\n", n / run(&l, tokens, n, depth, at_once));
    return 0;
}
