/* What a prefix cache holds, saved and taken in again: the same bits as from the live cache, on
 * one device and on two. No file does harm: cut, damaged, of another model, or made by an enemy who
 * can compute checksums. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/prefix_file.h"
#include "support/answers.h"
#include "support/late_device.h"

enum { N_CTX = 512, CHUNK = 48, PAGE = KV_PAGE, N_PROMPT = 200, SALT = 7 };

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    if (strcmp(name, "late") != 0) return __real_backend_find(out, name, err);
    *out = late_backend();
    return CARAT_OK;
}

/* ---- Engines ---------------------------------------------------------------------------- */

static struct carat_engine_options options_for(const char *backend, int32_t gpu_layers)
{
    return (struct carat_engine_options){.backend = backend,
                                         .n_ctx = N_CTX,
                                         .n_seq = 2,
                                         .chunk = CHUNK,
                                         .n_threads = 1,
                                         .gpu_layers = gpu_layers,
                                         .cache_split = PAGE,
                                         .max_itl_ms = 1e9};
}

static carat_engine *open_usual(void)
{
    struct carat_engine_options options = options_for("cpu", 0);
    return open_engine(models[GEMMA_E2B], &options);
}

static void check_cache(carat_engine *e)
{
    const char *problem = prefix_check(e->paging.cache, NULL, 0);
    if (problem) fail_msg("%s", problem);
    for (int kind = 0; kind < KV_KINDS; kind++)
        assert_int_equal(prefix_pool(e->paging.cache, (enum kv_kind)kind)->n_used, 0);
}

static void check_empty(carat_engine *e)
{
    check_cache(e);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        const struct page_pool *pool = prefix_pool(e->paging.cache, (enum kv_kind)kind);
        assert_int_equal(pool->n_free, pool->n_pages - 1);
    }
}

/* Two prompts with a common beginning, and the first one under a salt. */
static struct carat_request request_of(int i, int32_t prompt[N_PROMPT])
{
    draw_ids(TINY_SEED, prompt, N_PROMPT);
    if (i == 1) draw_ids(TINY_SEED + 1, prompt + 2 * PAGE, N_PROMPT - 2 * PAGE);
    struct carat_request r = greedy_request(prompt, N_PROMPT, 20);
    if (i == 2) r.cache_salt = SALT;
    return r;
}

static struct answer ask_number(carat_engine *e, int i)
{
    int32_t prompt[N_PROMPT];
    struct carat_request r = request_of(i, prompt);
    return ask(e, &r);
}

static void fill(carat_engine *e)
{
    for (int i = 0; i < 3; i++) ask_number(e, i);
}

static const char *path_to(const char *name)
{
    static char path[512];
    return scratch_file(&scratch, name, path);
}

static struct carat_prefixes save(carat_engine *e, const char *name, uint64_t bytes_max)
{
    struct carat_prefixes kept;
    struct carat_error err = {0};
    if (carat_prefixes_save(e, path_to(name), bytes_max, NULL, &kept, &err))
        fail_msg("%s", err.message);
    return kept;
}

static int load(carat_engine *e, const char *name, struct carat_prefixes *found,
                struct carat_error *err)
{
    *err = (struct carat_error){0};
    return carat_prefixes_load(e, path_to(name), found, err);
}

static struct carat_prefixes load_well(carat_engine *e, const char *name)
{
    struct carat_prefixes found;
    struct carat_error err;
    if (load(e, name, &found, &err)) fail_msg("%s", err.message);
    check_cache(e);
    return found;
}

/* ---- Files ------------------------------------------------------------------------------ */

static struct buf read_file(const char *name)
{
    struct buf out = {0};
    char piece[4096];
    FILE *f = fopen(path_to(name), "rb");
    assert_non_null(f);
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0) buf_add(&out, piece, n);
    fclose(f);
    assert_false(out.failed);
    return out;
}

static void write_file(const char *name, const void *data, size_t n)
{
    scratch_write(&scratch, name, data, n);
    assert_int_equal(chmod(path_to(name), 0600), 0);
}

static struct buf saved_file(void)
{
    carat_engine *e = open_usual();
    fill(e);
    save(e, "whole", 0);
    carat_engine_close(e);
    return read_file("whole");
}

/* ---- The same answers ------------------------------------------------------------------- */

static void check_restored(const carat_model *model, const char *backend, int32_t gpu_layers)
{
    struct carat_engine_options options = options_for(backend, gpu_layers);
    struct answer live[3];
    carat_engine *e = open_engine(model, &options);
    fill(e);
    struct carat_prefixes kept = save(e, "live", 0);
    for (int i = 0; i < 3; i++) live[i] = ask_number(e, i);
    carat_engine_close(e);

    options.n_seq = 3; /* neither this nor the length of the context matters */
    options.n_ctx = N_CTX / 2;
    e = open_engine(model, &options);
    struct carat_prefixes found = load_well(e, "live");
    assert_int_equal(found.tokens, kept.tokens);
    assert_int_equal(found.anchors, kept.anchors);
    assert_int_equal(found.bytes, kept.bytes);
    for (int i = 0; i < 3; i++) {
        struct answer a = ask_number(e, i);
        check_same(&a, &live[i]);
        assert_int_equal(a.done.n_cached, live[i].done.n_cached);
        assert_int_equal(a.done.n_cached, (N_PROMPT - 1) / PAGE * PAGE);
    }
    int32_t prompt[N_PROMPT];
    struct carat_request r = request_of(0, prompt);
    r.cache_salt = SALT + 1;
    struct answer stranger = ask(e, &r);
    assert_int_equal(stranger.done.n_cached, 0);
    check_same(&stranger, &live[0]);
    check_cache(e);
    carat_engine_close(e);
}

static void restored_answers_have_the_bits_of_live_ones(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) check_restored(models[size], "cpu", 0);
    check_restored(models[GEMMA_E4B], "ref", 0);
}

static void restored_answers_of_two_devices_too(void **state)
{
    (void)state;
    check_restored(models[GEMMA_E2B], "ref", 2);
    check_restored(models[GEMMA_12B], "ref", 3);
    late_reset();
    check_restored(models[GEMMA_E4B], "late", 0);
    late_reset();
    check_restored(models[GEMMA_26B], "late", 2);
}

static void what_is_saved_again_is_the_same_file(void **state)
{
    (void)state;
    struct buf first = saved_file();
    carat_engine *e = open_usual();
    load_well(e, "whole");
    save(e, "again", 0);
    struct buf second = read_file("again");
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
    load_well(e, "again"); /* all of it is there already */
    save(e, "again", 0);
    buf_deinit(&second);
    second = read_file("again");
    assert_int_equal(first.length, second.length);
    carat_engine_close(e);
    buf_deinit(&first);
    buf_deinit(&second);
}

/* ---- Limits ----------------------------------------------------------------------------- */

static void what_was_used_last_is_kept_within_the_limit(void **state)
{
    (void)state;
    carat_engine *e = open_usual();
    fill(e);
    ask_number(e, 1);
    uint64_t all = save(e, "all", 0).bytes, last = 0;
    for (uint64_t most = 1; most <= all; most += all / 40) {
        struct carat_prefixes kept = save(e, "part", most);
        struct stat facts;
        assert_int_equal(stat(path_to("part"), &facts), 0);
        assert_int_equal(facts.st_size, kept.bytes);
        assert_true(kept.bytes <= most || kept.tokens == 0);
        assert_true(kept.bytes >= last);
        last = kept.bytes;
        if (kept.tokens < N_PROMPT / PAGE * PAGE) continue;
        carat_engine *other = open_usual();
        load_well(other, "part");
        assert_true(ask_number(other, 1).done.n_cached > 0);
        carat_engine_close(other);
    }
    carat_engine_close(e);
}

static void a_smaller_cache_takes_what_fits(void **state)
{
    (void)state;
    carat_engine *e = open_usual();
    for (uint64_t salt = 0; salt < 12; salt++) {
        int32_t prompt[N_PROMPT];
        struct carat_request r = request_of(0, prompt);
        r.cache_salt = salt;
        ask(e, &r);
    }
    struct carat_prefixes all = save(e, "many", 0);
    carat_engine_close(e);
    struct carat_engine_options options = options_for("cpu", 0);
    options.n_seq = 1;
    options.n_ctx = 256;
    options.cache_split = 4096;
    e = open_engine(models[GEMMA_E2B], &options);
    struct carat_prefixes part = load_well(e, "many");
    assert_true(part.anchors > 0 && part.tokens < all.tokens);
    int32_t prompt[N_PROMPT];
    struct carat_request r = request_of(0, prompt);
    r.cache_salt = 11;
    assert_true(ask(e, &r).done.n_cached > 0);
    check_cache(e);
    carat_engine_close(e);
}

static void no_file_is_an_empty_one_and_the_note_comes_back(void **state)
{
    (void)state;
    struct carat_prefixes found;
    struct carat_error err = {0};
    uint8_t note[CARAT_NOTE_BYTES], zeros[CARAT_NOTE_BYTES] = {0};
    carat_engine *e = open_usual();
    assert_int_equal(load(e, "missing", &found, &err), CARAT_OK);
    assert_true(found.bytes == 0 && found.tokens == 0);
    assert_int_equal(carat_prefixes_note(path_to("missing"), note, &err), CARAT_OK);
    assert_memory_equal(note, zeros, sizeof note);
    assert_int_equal(save(e, "empty", 0).tokens, 0);
    assert_int_equal(load_well(e, "empty").tokens, 0);
    for (int i = 0; i < CARAT_NOTE_BYTES; i++) note[i] = (uint8_t)(i + 1);
    assert_int_equal(carat_prefixes_save(e, path_to("noted"), 0, note, NULL, &err), CARAT_OK);
    memset(zeros, 0, sizeof zeros);
    assert_int_equal(carat_prefixes_note(path_to("noted"), zeros, &err), CARAT_OK);
    assert_memory_equal(note, zeros, sizeof note);
    carat_engine_close(e);
}

/* ---- Files that are refused ------------------------------------------------------------- */

static void check_refused(carat_engine *e, const char *name, enum carat_status status,
                          const char *text)
{
    struct carat_error err;
    struct carat_prefixes found;
    assert_int_equal(load(e, name, &found, &err), status);
    assert_int_equal(err.code, status);
    if (!strstr(err.message, text)) fail_msg("\"%s\" expected: %s", text, err.message);
    assert_non_null(strstr(err.message, name));
    assert_true(found.tokens == 0 && found.bytes == 0);
    check_empty(e);
}

static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    struct buf whole = saved_file();
    carat_engine *e = open_usual();
    int fd = open(path_to("whole"), O_RDWR);
    for (size_t n = whole.length; n-- > 0;) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        check_refused(e, "whole", CARAT_ECHECKSUM, "cut");
    }
    close(fd);
    buf_add_char(&whole, '\0');
    write_file("long", whole.data, whole.length);
    check_refused(e, "long", CARAT_ECHECKSUM, "as long");
    carat_engine_close(e);
    buf_deinit(&whole);
}

/* Every byte of the header and the lists, and some of the pages. */
static void a_file_with_a_wrong_bit_is_refused(void **state)
{
    (void)state;
    enum { DENSE = 400, STEP = 997 };
    struct buf whole = saved_file();
    carat_engine *e = open_usual();
    int n = 0;
    for (size_t at = sizeof PREFIX_MAGIC; at < whole.length; at += at < DENSE ? 1 : STEP) {
        whole.data[at] = (char)(whole.data[at] ^ (1 << at % 8));
        write_file("bit", whole.data, whole.length);
        struct carat_prefixes found;
        struct carat_error err;
        int status = load(e, "bit", &found, &err);
        assert_true(status == CARAT_ECHECKSUM || status == CARAT_EUNSUPPORTED);
        check_empty(e);
        whole.data[at] = (char)(whole.data[at] ^ (1 << at % 8));
        n++;
    }
    assert_true(n > DENSE);
    carat_engine_close(e);
    buf_deinit(&whole);
}

static void other_models_and_settings_are_refused(void **state)
{
    (void)state;
    struct buf whole = saved_file();
    struct carat_engine_options options = options_for("cpu", 0);
    carat_engine *e = open_engine(models[GEMMA_E4B], &options);
    check_refused(e, "whole", CARAT_EUNSUPPORTED, "another model");
    carat_engine_close(e);
    options.kv_type = CARAT_KV_F32;
    e = open_engine(models[GEMMA_E2B], &options);
    check_refused(e, "whole", CARAT_EUNSUPPORTED, "other settings");
    carat_engine_close(e);
    options = options_for("ref", 0);
    options.kv_type = CARAT_KV_F16;
    e = open_engine(models[GEMMA_E2B], &options);
    check_refused(e, "whole", CARAT_EUNSUPPORTED, "other settings");
    carat_engine_close(e);
    whole.data[sizeof PREFIX_MAGIC]++;
    write_file("newer", whole.data, whole.length);
    e = open_usual();
    check_refused(e, "newer", CARAT_EUNSUPPORTED, "version");
    carat_engine_close(e);
    buf_deinit(&whole);
}

/* Then prompts have other bits (layout.h). Only a GPU decides so: here it is set by hand. */
static void a_file_of_prompts_apart_is_another_setting(void **state)
{
    (void)state;
    struct carat_engine_options options = options_for("cpu", 0);
    options.deterministic = true;
    carat_engine *e = open_engine(models[GEMMA_E2B], &options);
    fill(e);
    save(e, "together", 0);
    carat_engine_close(e);
    e = open_engine(models[GEMMA_E2B], &options);
    e->runner->layout.is_apart = true;
    check_refused(e, "together", CARAT_EUNSUPPORTED, "other settings");
    e->runner->layout.is_apart = false;
    load_well(e, "together");
    carat_engine_close(e);
}

/* The same shapes, names and sizes: only weights differ. */
static void a_model_with_other_weights_is_another_model(void **state)
{
    (void)state;
    struct buf whole = saved_file();
    struct carat_error err = {0};
    carat_model *other;
    const struct tiny_options tiny = {
        .size = GEMMA_E2B, .format = FORMAT_Q8_0, .seed = TINY_SEED + 1};
    assert_int_equal(tiny_model_save(path_to("other.gguf"), &tiny, &err), CARAT_OK);
    assert_int_equal(carat_model_open(&other, path_to("other.gguf"), &err), CARAT_OK);
    struct carat_engine_options options = options_for("cpu", 0);
    carat_engine *e = open_engine(other, &options);
    check_refused(e, "whole", CARAT_EUNSUPPORTED, "another model");
    carat_engine_close(e);
    carat_model_close(other);
    buf_deinit(&whole);
}

static void other_files_are_neither_read_nor_replaced(void **state)
{
    (void)state;
    static const char text[] = "carat prefix notes of a person";
    struct carat_error err = {0};
    carat_engine *e = open_usual();
    write_file("person", text, sizeof text);
    check_refused(e, "person", CARAT_EUSAGE, "something else");
    assert_int_equal(carat_prefixes_save(e, path_to("person"), 0, NULL, NULL, &err), CARAT_EUSAGE);
    struct buf same = read_file("person");
    assert_int_equal(same.length, sizeof text);
    buf_deinit(&same);
    char part[512];
    assert_int_equal(access(scratch_file(&scratch, "person.part", part), F_OK), -1);
    assert_int_equal(mkfifo(path_to("pipe"), 0600), 0);
    check_refused(e, "pipe", CARAT_EUSAGE, "something else");
    assert_int_equal(carat_prefixes_save(e, path_to("pipe"), 0, NULL, NULL, &err), CARAT_EUSAGE);
    assert_int_equal(carat_prefixes_save(e, scratch.path, 0, NULL, NULL, &err), CARAT_EUSAGE);
    assert_int_equal(carat_prefixes_save(e, path_to("no/folder"), 0, NULL, NULL, &err), CARAT_EIO);
    save(e, "public", 0);
    assert_int_equal(chmod(path_to("public"), 0620), 0);
    check_refused(e, "public", CARAT_EUSAGE, "others may write");
    carat_engine_close(e);
}

static void an_engine_without_a_cache_says_so(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options options = options_for("cpu", 0);
    options.no_prefix_cache = true;
    carat_engine *e = open_engine(models[GEMMA_E2B], &options);
    assert_int_equal(carat_prefixes_save(e, path_to("none"), 0, NULL, NULL, &err), CARAT_EUSAGE);
    assert_int_equal(carat_prefixes_load(e, path_to("none"), NULL, &err), CARAT_EUSAGE);
    assert_int_equal(access(path_to("none"), F_OK), -1);
    carat_engine_close(e);
}

/* Whichever allocation fails: a message, the old file, an empty cache. */
static void want_of_memory_is_reported(void **state)
{
    (void)state;
    struct buf whole = saved_file();
    struct carat_error err;
    carat_engine *full = open_usual(), *e = open_usual();
    fill(full);
    int n_failed = 0;
    for (long n = 0, is_left = 1; is_left; n++) {
        mem_fail_after(n);
        int status = carat_prefixes_save(full, path_to("whole"), 0, NULL, NULL, &err);
        is_left = mem_fail_after(-1);
        assert_int_equal(status, is_left ? CARAT_EMEMORY : CARAT_OK);
        n_failed += status != CARAT_OK;
    }
    for (long n = 0, is_left = 1; is_left; n++) {
        mem_fail_after(n);
        int status = carat_prefixes_load(e, path_to("whole"), NULL, &err);
        is_left = mem_fail_after(-1);
        assert_int_equal(status, is_left ? CARAT_EMEMORY : CARAT_OK);
        if (is_left) check_empty(e);
        n_failed += status != CARAT_OK;
    }
    assert_true(n_failed > 10);
    struct buf same = read_file("whole");
    assert_int_equal(same.length, whole.length);
    carat_engine_close(full);
    carat_engine_close(e);
    buf_deinit(&whole);
    buf_deinit(&same);
}

/* ---- Enemies ---------------------------------------------------------------------------- */

/* Gives a changed file right checksums. */
static void seal(struct buf *file)
{
    struct prefix_header h;
    memcpy(&h, file->data, sizeof h);
    h.sum = prefix_sum(0, &h, offsetof(struct prefix_header, sum));
    memcpy(file->data, &h, sizeof h);
    const uint64_t pages = (uint64_t)h.n_blocks * h.origin.page_bytes[KV_GLOBAL] +
                           (uint64_t)h.n_locals * h.origin.page_bytes[KV_LOCAL];
    const size_t pieces[] = {sizeof h, (size_t)h.n_blocks * 16, (size_t)h.n_blocks * PAGE * 4,
                             (size_t)h.n_anchors * 16, (size_t)h.n_anchors * (size_t)h.n_refs * 4};
    if (prefix_file_bytes(&h) != file->length || pages > file->length) return;
    uint64_t sum = 0;
    size_t at = 0;
    for (int i = 0; i < 5; at += pieces[i++]) sum = prefix_sum(sum, file->data + at, pieces[i]);
    for (int32_t i = 0; i < h.n_blocks + h.n_locals; i++) {
        size_t n = (size_t)h.origin.page_bytes[i < h.n_blocks ? KV_GLOBAL : KV_LOCAL];
        sum = prefix_sum(sum, file->data + at, n);
        at += n;
    }
    memcpy(file->data + at, &sum, sizeof sum);
}

/* Numbers of the header and the lists become small, large and negative ones. Whatever is accepted
 * leaves a sound cache, from which the engine answers something. */
static void forged_lists_do_no_harm(void **state)
{
    (void)state;
    enum { ROUNDS = 1000 };
    static const int32_t numbers[] = {0, 1, 2, 3, 5, -1, 63, 64, 1 << 20, INT32_MAX, INT32_MIN};
    struct buf whole = saved_file(), forged = {0};
    struct prefix_header h;
    struct rng rng = {20261123};
    carat_engine *e = open_usual();
    int n_accepted = 0, n_refused = 0;
    memcpy(&h, whole.data, sizeof h);
    const size_t lists = sizeof h + (size_t)h.n_blocks * (16 + PAGE * 4) +
                         (size_t)h.n_anchors * (16 + (size_t)h.n_refs * 4);
    for (int round = 0; round < ROUNDS; round++) {
        buf_clear(&forged);
        buf_add(&forged, whole.data, whole.length);
        for (uint32_t i = 0, n = 1 + rng_below(&rng, 3); i < n; i++) {
            size_t at = rng_below(&rng, 8) == 0
                            ? 72 + 4 * rng_below(&rng, 4)
                            : 120 + 4 * rng_below(&rng, (uint32_t)(lists - 120) / 4);
            memcpy(forged.data + at, &numbers[rng_below(&rng, 11)], 4);
        }
        seal(&forged);
        write_file("forged", forged.data, forged.length);
        struct carat_prefixes found;
        struct carat_error err;
        int status = load(e, "forged", &found, &err);
        assert_true(status == CARAT_OK || status == CARAT_ECHECKSUM);
        n_accepted += status == CARAT_OK;
        n_refused += status != CARAT_OK;
        check_cache(e);
        if (round % 100 == 0) ask_number(e, round % 3);
        prefix_flush(e->paging.cache);
        check_empty(e);
    }
    print_message("%d forged files accepted, %d refused\n", n_accepted, n_refused);
    assert_true(n_accepted > ROUNDS / 20 && n_refused > ROUNDS / 20);
    carat_engine_close(e);
    buf_deinit(&whole);
    buf_deinit(&forged);
}

/* ---- Writing ---------------------------------------------------------------------------- */

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    struct buf old = saved_file();
    carat_engine *e = open_usual();
    struct carat_error err = {0};
    struct rlimit before, little;
    char part[512];
    ask_number(e, 1);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t limit = 0; limit < old.length / 2; limit = 3 * limit + 50) {
        little = (struct rlimit){limit, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &little);
        int status = carat_prefixes_save(e, path_to("whole"), 0, NULL, NULL, &err);
        setrlimit(RLIMIT_FSIZE, &before);
        assert_int_equal(status, CARAT_EIO);
        assert_non_null(strstr(err.message, "cannot be written"));
        struct buf now = read_file("whole");
        assert_int_equal(now.length, old.length);
        assert_memory_equal(now.data, old.data, old.length);
        buf_deinit(&now);
        assert_int_equal(access(scratch_file(&scratch, "whole.part", part), F_OK), -1);
    }
    save(e, "whole", 0);
    carat_engine_close(e);
    buf_deinit(&old);
}

static void one_process_at_a_time_writes(void **state)
{
    (void)state;
    struct carat_error err = {0};
    char part[512];
    carat_engine *e = open_usual();
    ask_number(e, 0);
    int fd = open(scratch_file(&scratch, "busy.part", part), O_RDWR | O_CREAT, 0644);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(carat_prefixes_save(e, path_to("busy"), 0, NULL, NULL, &err), CARAT_EBUSY);
    assert_int_equal(access(part, F_OK), 0);
    close(fd); /* what a killed process has left is written over */
    save(e, "busy", 0);
    assert_int_equal(access(part, F_OK), -1);
    struct stat facts;
    assert_int_equal(stat(path_to("busy"), &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0600);
    carat_engine_close(e);
}

static void links_are_followed_but_not_those_of_others(void **state)
{
    (void)state;
    struct carat_error err = {0};
    char link[512], part[512];
    struct stat facts;
    carat_engine *e = open_usual();
    save(e, "real", 0);
    assert_int_equal(symlink("real", scratch_file(&scratch, "link", link)), 0);
    ask_number(e, 0);
    uint64_t bytes = save(e, "link", 0).bytes;
    assert_int_equal(lstat(link, &facts), 0);
    assert_true(S_ISLNK(facts.st_mode));
    assert_int_equal(stat(path_to("real"), &facts), 0);
    assert_int_equal(facts.st_size, bytes);
    write_file("victim", "a", 1);
    assert_int_equal(symlink("victim", scratch_file(&scratch, "real.part", part)), 0);
    assert_int_equal(carat_prefixes_save(e, path_to("real"), 0, NULL, NULL, &err), CARAT_EIO);
    assert_int_equal(stat(path_to("victim"), &facts), 0);
    assert_int_equal(facts.st_size, 1);
    carat_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_answers_have_the_bits_of_live_ones),
        cmocka_unit_test(restored_answers_of_two_devices_too),
        cmocka_unit_test(what_is_saved_again_is_the_same_file),
        cmocka_unit_test(what_was_used_last_is_kept_within_the_limit),
        cmocka_unit_test(a_smaller_cache_takes_what_fits),
        cmocka_unit_test(no_file_is_an_empty_one_and_the_note_comes_back),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(a_file_with_a_wrong_bit_is_refused),
        cmocka_unit_test(a_file_of_prompts_apart_is_another_setting),
        cmocka_unit_test(other_models_and_settings_are_refused),
        cmocka_unit_test(a_model_with_other_weights_is_another_model),
        cmocka_unit_test(other_files_are_neither_read_nor_replaced),
        cmocka_unit_test(an_engine_without_a_cache_says_so),
        cmocka_unit_test(want_of_memory_is_reported),
        cmocka_unit_test(forged_lists_do_no_harm),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(one_process_at_a_time_writes),
        cmocka_unit_test(links_are_followed_but_not_those_of_others),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
