/* A whole model: keys, tensors and token texts of a small valid file are edited; the file is
 * opened, described, tokenised with and run for some steps, on the reference or the CPU backend.
 * What is refused says why; what is accepted computes without a fault. Or the model is left as it
 * is, and the file of its drafter is edited.
 *
 * An input is a byte that chooses the model or its drafter, one for the way to run it, and edits of
 * 8 bytes.
 *
 * Subject: src/model/config.c 95
 * Subject: src/model/weights.c 95
 * Subject: src/text/vocab.c 80
 * Subject: src/engine/fit.c 60
 * Subject: src/engine/model_file.c 90
 * Subject: src/engine/drafter_file.c 75
 * Subject: src/engine/drafting.c 90
 * Subject: src/engine/engine.c 75
 * Subject: src/engine/batch.c 90
 * Subject: src/engine/sample.c 65
 * Subject: src/engine/show.c 90 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "carat.h"
#include "fuzz/source.h"
#include "gguf/internal.h"
#include "support/tiny_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_VOCAB = 640, EDIT_BYTES = 8, EDITS_MAX = 16, LAYOUTS = 16, STEPS_MAX = 40 };

/* clang-format off */
static const uint32_t nasty[] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 255,
    256, 257, 511, 512, 640, 1023, 1024, 4096, 65535, 65536, 1u << 20, 1u << 24, INT32_MAX,
    1u << 31, UINT32_MAX, 0x7FC00000 /* NaN */, 0x7F800000, 0xFF800000 /* infinite */,
    0x7F7FFFFF /* largest */, 0x33333333};
enum { N_NASTY = sizeof nasty / sizeof *nasty };
/* clang-format on */

struct edit {
    uint8_t target, at, at2, op;
    uint32_t value;
};

/* ---- The file --------------------------------------------------------------------------- */

/* Small shapes, for as many runs a second as possible. */
static void base_file(struct gguf_writer *w, int size, int choice, bool is_drafter)
{
    static const enum format formats[] = {FORMAT_F32,  FORMAT_F16,   FORMAT_BF16,   FORMAT_Q8_0,
                                          FORMAT_Q4_0, FORMAT_MXFP4, FORMAT_IQ4_NL, FORMAT_Q4_1};
    struct gemma_shape s = gemma_tiny_shape((enum gemma_size)size);
    struct gemma_layout layout = gemma_layout_plain(formats[choice % 8]);
    s.n_vocab = N_VOCAB;
    s.n_ctx = 64;
    s.window = 8;
    if (s.n_embd > 32) s.n_embd = 32;
    if (s.n_ff > 64) s.n_ff = 64;
    layout.separate_experts = choice & 8;
    if (is_drafter) s = gemma_drafter_shape(&s);
    tiny_model_put_shape(w, &s, &layout, 5);
}

/* A copy of a file that is made once. */
static void put_file(struct gguf_writer *w, int size, int choice, bool is_drafter)
{
    static struct gguf_writer made[GEMMA_SIZES][LAYOUTS][2];
    struct gguf_writer *from = &made[size][choice % LAYOUTS][is_drafter];
    if (from->n_key == 0) base_file(from, size, choice % LAYOUTS, is_drafter);
    for (size_t i = 0; i < from->n_key; i++) {
        const struct gguf_out_key *k = &from->keys[i];
        gguf_put_raw(w, k->name, k->name_length, k->type, k->value, k->value_bytes);
    }
    for (size_t i = 0; i < from->n_tensor; i++) {
        const struct gguf_out_tensor *t = &from->tensors[i];
        gguf_add_bytes(w, t->name, t->gguf_type, t->dims, t->n_dims, t->data, t->bytes);
    }
}

static uint32_t number_of(const struct edit *e)
{
    return e->op & 128 ? e->value : nasty[e->value % N_NASTY];
}

static void put_integers(struct gguf_writer *w, const char *key, const struct edit *e)
{
    int32_t values[16];
    for (int i = 0; i < 16; i++)
        values[i] = (int32_t)(i % 3 ? number_of(e) : nasty[(e->at2 + i) % N_NASTY]);
    gguf_put_array(w, key, GGUF_I32, values, e->at2 % 17);
}

static void put_booleans(struct gguf_writer *w, const char *key, const struct edit *e)
{
    uint8_t values[16];
    for (int i = 0; i < 16; i++) values[i] = number_of(e) >> i & 1;
    gguf_put_array(w, key, GGUF_BOOL, values, e->at2 % 17);
}

static void edit_key(struct gguf_writer *w, const struct edit *e)
{
    if (w->n_key == 0) return;
    struct gguf_out_key *k = &w->keys[e->at % w->n_key];
    uint32_t value = number_of(e);
    float real;
    memcpy(&real, &value, sizeof real);
    size_t at = e->op & 64 ? 0 : (size_t)e->at2 * 4;
    switch (e->op % 8) {
    case 0:
    case 1:
        if (k->value_bytes >= 4) memcpy((char *)k->value + at % (k->value_bytes - 3), &value, 4);
        break;
    case 2: gguf_drop_key(w, k->name); break;
    case 3: gguf_put_u32(w, k->name, value); break;
    case 4: put_integers(w, k->name, e); break;
    case 5: put_booleans(w, k->name, e); break;
    case 6: gguf_put_f32(w, k->name, real); break;
    case 7: k->type = e->at2 % 14; break;
    }
}

/* Another size in one dimension, or another type, with as many bytes as that needs. */
static void reshape(struct gguf_writer *w, const struct gguf_out_tensor *t, const struct edit *e)
{
    int64_t dims[GGUF_DIMS_MAX], n = 1;
    struct tensor_type type;
    char name[64];
    uint32_t number = t->gguf_type;
    int n_dims = t->n_dims, changed = e->at2 % 3;
    memcpy(dims, t->dims, sizeof dims);
    if (e->op % 6 == 0) {
        dims[changed] = number_of(e) % 5000;
        if (changed >= n_dims) n_dims = changed + 1;
    } else {
        number = number_of(e) % 43;
    }
    for (int i = 0; i < n_dims; i++) n *= dims[i];
    if (!tensor_type_find(number, &type) || n < 0 || n > 1 << 20) return;
    snprintf(name, sizeof name, "%s", t->name);
    uint64_t bytes = (uint64_t)n / type.block_elements * type.block_bytes;
    uint8_t *data = mem_alloc(bytes + 1, 1);
    memset(data, e->at2, bytes);
    gguf_add_bytes(w, name, number, dims, n_dims, data, bytes);
    mem_free(data);
}

static void swap_names(struct gguf_out_tensor *a, struct gguf_out_tensor *b)
{
    char *name = a->name;
    size_t length = a->name_length;
    a->name = b->name;
    a->name_length = b->name_length;
    b->name = name;
    b->name_length = length;
}

static void edit_tensor(struct gguf_writer *w, const struct edit *e)
{
    if (w->n_tensor == 0) return;
    struct gguf_out_tensor *t = &w->tensors[e->at % w->n_tensor];
    uint32_t value = number_of(e);
    switch (e->op % 6) {
    case 0:
    case 1: reshape(w, t, e); break;
    case 2: gguf_drop_tensor(w, t->name); break;
    case 3:
        for (uint64_t i = 0; t->data && i + 4 <= t->bytes; i += 4)
            memcpy((char *)t->data + i, &value, 4);
        break;
    case 4:
        if (t->data && t->bytes >= 4)
            memcpy((char *)t->data + (uint64_t)e->at2 * 4 % (t->bytes - 3), &value, 4);
        break;
    case 5: swap_names(t, &w->tensors[e->at2 % w->n_tensor]); break;
    }
}

/* One byte of a token's text, or of a merge. */
static void edit_text(struct gguf_writer *w, const struct edit *e)
{
    for (size_t i = 0; i < w->n_key; i++) {
        struct gguf_out_key *k = &w->keys[i];
        uint32_t element_type = 0;
        uint64_t length = 0;
        if (k->type != GGUF_ARRAY || k->value_bytes < 12) continue;
        memcpy(&element_type, k->value, 4);
        bool is_merges = strstr(k->name, "merges") != NULL;
        if (element_type != GGUF_STRING || is_merges == ((e->at & 1) == 0)) continue;
        char *at = (char *)k->value + 12, *end = (char *)k->value + k->value_bytes;
        for (uint32_t n = e->value % N_VOCAB; n > 0 && end - at >= 8; n--) {
            memcpy(&length, at, 8);
            if (length > (uint64_t)(end - at) - 8) return;
            at += 8 + length;
        }
        if (end - at < 8) return;
        memcpy(&length, at, 8);
        if (length > 0 && length <= (uint64_t)(end - at) - 8) at[8 + e->at2 % length] = (char)e->op;
    }
}

static void edit_file(struct gguf_writer *w, struct source *s)
{
    for (int i = 0; i < EDITS_MAX && s->size - s->at >= EDIT_BYTES; i++) {
        struct edit e = {next_byte(s), next_byte(s), next_byte(s), next_byte(s), next_u32(s)};
        if (e.target % 8 < 4)
            edit_key(w, &e);
        else if (e.target % 8 < 7)
            edit_tensor(w, &e);
        else
            edit_text(w, &e);
    }
}

/* ---- Its use ---------------------------------------------------------------------------- */

static void check_ids(const carat_model *m, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        carat_assert(ids[i] >= 0 && ids[i] < carat_model_info(m)->n_vocab);
}

static void fill_prompt(const carat_model *m, int32_t prompt[8])
{
    static const char text[] = "Hello  world\n\n<|turn>user\xFF\xE2\x96\x81<|channel>";
    struct carat_error err = {0};
    for (int special = 0; special < 3; special++) {
        int32_t *ids;
        size_t n;
        carat_assert(carat_tokenize(m, text, sizeof text, (enum carat_special)special, true, &ids,
                                    &n, &err) == CARAT_OK &&
                     n > 0);
        check_ids(m, ids, n);
        for (size_t i = 0; i < 8; i++) prompt[i] = ids[i % n];
        carat_free(ids);
    }
}

/* Different ways to sample: as the file says, penalised, the likeliest ones, from all. */
static struct carat_sampling sampling_number(const carat_model *m, size_t k)
{
    struct carat_sampling p = carat_model_info(m)->sampling;
    if (k == 1) p.repeat_penalty = 1.5f;
    if (k == 2) p = (struct carat_sampling){.frequency_penalty = 0.5f};
    if (k == 3) p = (struct carat_sampling){.temperature = 2, .min_p = 0.01f};
    return p;
}

static void run_requests(carat_engine *e, const carat_model *m, const carat_grammar *grammar,
                         const int32_t *prompt)
{
    struct carat_error err = {0};
    const struct carat_event *event;
    struct carat_logit_bias bias = {.id = prompt[0], .bias = 3};
    carat_request_id id = 0;
    for (size_t k = 0; k < 4; k++) {
        struct carat_request r = {.prompt = prompt,
                                  .n_prompt = 5 + k,
                                  .max_tokens = 6,
                                  .sampling = sampling_number(m, k),
                                  .bias = &bias,
                                  .n_bias = k == 1,
                                  .grammar = k < 2 ? grammar : NULL,
                                  .ignore_stop = true};
        if (carat_submit(e, &r, &id, &err)) carat_assert(err.message[0]);
    }
    if (carat_model_info(m)->n_expert > 0) carat_cancel(e, id);
    for (int i = 0, work = 1; work > 0 && i < STEPS_MAX; i++) {
        work = carat_step(e, &err);
        carat_assert(work >= 0);
        while ((event = carat_next_event(e)))
            if (event->kind == CARAT_EVENT_TOKEN) check_ids(m, &event->id, 1);
    }
    const struct carat_stats *stats = carat_engine_stats(e);
    const struct carat_page_counts *pages = &stats->pages_global;
    carat_assert(stats->submitted <= 4 && pages->free <= pages->all);
    carat_assert(carat_engine_memory(e)->total > 0 && carat_engine_setup(e)->backend[0]);
}

static void use(const carat_model *m, const carat_drafter *drafter, uint8_t way)
{
    struct carat_error err = {0};
    struct carat_memory memory;
    int32_t prompt[8];
    carat_engine *e;
    struct carat_engine_options options = {.size = sizeof options,
                                           .n_draft = drafter ? 3 : 0,
                                           .drafter = drafter,
                                           .backend = way & 1 ? "cpu" : "ref",
                                           .n_threads = 1,
                                           .n_ctx = way & 2 ? 16 : 24,
                                           .chunk = way & 4 ? 3 : 16,
                                           .n_seq = way & 8 ? 2 : 1,
                                           .precision = way & 16 ? CARAT_PRECISION_FP32
                                                                 : CARAT_PRECISION_FAST,
                                           .kv_type = (enum carat_kv_type)(way >> 5 & 3)};
    if (way & 128) {
        options.cache_bytes = way & 2 ? 1 << 20 : 1 << 14;
        options.cache_split = 64;
        options.no_prefix_cache = way & 64;
    }
    fill_prompt(m, prompt);
    int status = carat_memory_estimate(m, &options, &memory, &err);
    carat_assert(status == CARAT_OK || (err.message[0] && status != CARAT_EINTERNAL));
    if (status || memory.total > (uint64_t)256 << 20) return;
    status = carat_engine_open(&e, m, &options, &err);
    carat_assert(status == CARAT_OK || err.message[0]);
    if (status) return;
    carat_grammar *letters = NULL;
    static const char rules[] = "root ::= [a-z ]* | \"H\" root";
    status = carat_grammar_open_gbnf(&letters, m, rules, sizeof rules - 1, &err);
    carat_assert(status == CARAT_OK || err.message[0]); /* some vocabularies have no letters */
    run_requests(e, m, letters, prompt);
    carat_engine_close(e);
    carat_grammar_close(letters);
}

enum { MODEL, DRAFTER, FILES };

/* A file in memory that has a path. Forgets the writer. */
static const char *save(struct gguf_writer *w, int which)
{
    static int files[FILES] = {-1, -1};
    static char paths[FILES][64];
    int *at = &files[which], file;
    char *path = paths[which];
    struct buf image = {0};
    struct carat_error err = {0};
    if (*at < 0) *at = memfd_create("model", 0);
    file = *at;
    snprintf(path, sizeof paths[which], "/proc/self/fd/%d", file);
    carat_assert(gguf_save_image(w, &image, &err) == CARAT_OK);
    carat_assert(ftruncate(file, 0) == 0 &&
                 pwrite(file, image.data, image.length, 0) == (ssize_t)image.length);
    buf_deinit(&image);
    gguf_writer_deinit(w);
    return path;
}

/* NULL: it is refused. */
static carat_drafter *open_drafter(const carat_model *m, const char *path)
{
    struct carat_error err = {0};
    carat_drafter *drafter;
    int status = carat_drafter_open(&drafter, path, m, &err);
    carat_assert(status == CARAT_OK ||
                 (err.message[0] && (status == CARAT_EFORMAT || status == CARAT_EMEMORY)));
    if (drafter) carat_assert(carat_drafter_info(drafter)->n_params > 0);
    return drafter;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = {data, size, 0};
    struct gguf_writer w = {0}, d = {0};
    struct carat_error err = {0};
    carat_model *m;
    char *json;
    uint8_t model = next_byte(&s), way = next_byte(&s);
    int choice = model / GEMMA_SIZES;
    bool has_drafter = choice & LAYOUTS;
    put_file(&w, model % GEMMA_SIZES, choice, false);
    put_file(&d, model % GEMMA_SIZES, choice, true);
    edit_file(has_drafter ? &d : &w, &s);
    const char *path = save(&w, MODEL), *draft_path = save(&d, DRAFTER);
    long live = mem_blocks_live();
    int status = carat_model_open(&m, path, &err);
    carat_assert(status == CARAT_OK ||
                 (err.message[0] && (status == CARAT_EFORMAT || status == CARAT_EMEMORY)));
    if (carat_show_json(path, &json, &err) == CARAT_OK) carat_free(json);
    struct carat_file_facts facts;
    carat_file_facts(path, way % 2, &facts, &err);
    if (status == CARAT_OK) {
        carat_drafter *drafter = has_drafter ? open_drafter(m, draft_path) : NULL;
        use(m, drafter, way);
        carat_drafter_close(drafter);
        carat_model_close(m);
    }
    carat_assert(mem_blocks_live() == live);
    return 0;
}
