/* Files of saved prefixes: the input is such a file, or (first byte odd) what stands in its lists,
 * which then gets a right header and right checksums. What is accepted is put into a cache that
 * has to add up afterwards, and whose own list has to be right.
 *
 * Subject: src/engine/prefix_reader.c 100
 * Subject: src/engine/prefix_file.c 100
 * Subject: src/cache/saved.c 100 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/buf.h"
#include "engine/prefix_reader.h"
#include "fuzz/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGE = 4, WINDOW = 7, VOCAB = 64, PAGES = 12, PAGE_BYTES = 8, COUNT_MAX = 16 };

static const struct prefix_origin origin = {
    .model = {1, 2}, .page_bytes = {PAGE_BYTES, PAGE_BYTES}, .page = PAGE, .window = WINDOW};

/* A file in memory that has a path. */
static const char *save(const void *data, size_t n)
{
    static int file = -1;
    static char path[64];
    if (file < 0) file = memfd_create("prefixes", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    carat_assert(fchmod(file, 0600) == 0 && ftruncate(file, 0) == 0);
    carat_assert(pwrite(file, data, n, 0) == (ssize_t)n);
    return path;
}

/* Appends n bytes of the input, zeros after its end, and adds them to the sum. */
static void add_piece(struct buf *file, struct source *s, size_t n, uint64_t *sum)
{
    size_t begin = file->length;
    while (file->length < begin + n) buf_add_char(file, (char)next_byte(s));
    *sum = prefix_sum(*sum, file->data + begin, n);
}

/* A whole file; only what the lists say comes from the input. */
static void add_file(struct buf *file, struct source *s, int32_t n_refs)
{
    uint64_t sum = 0;
    struct prefix_header h = {.magic = PREFIX_MAGIC,
                              .version = PREFIX_VERSION,
                              .bytes = sizeof h,
                              .origin = origin,
                              .n_blocks = next_byte(s) % COUNT_MAX,
                              .n_locals = next_byte(s) % COUNT_MAX,
                              .n_anchors = next_byte(s) % COUNT_MAX,
                              .n_refs = n_refs};
    h.file_bytes = prefix_file_bytes(&h);
    h.sum = prefix_sum(0, &h, offsetof(struct prefix_header, sum));
    buf_add(file, &h, sizeof h);
    sum = prefix_sum(sum, &h, sizeof h);
    const size_t blocks = (size_t)h.n_blocks, anchors = (size_t)h.n_anchors;
    add_piece(file, s, blocks * sizeof(struct saved_block), &sum);
    add_piece(file, s, blocks * PAGE * sizeof(int32_t), &sum);
    add_piece(file, s, anchors * sizeof(struct saved_anchor), &sum);
    add_piece(file, s, anchors * (size_t)n_refs * sizeof(int32_t), &sum);
    for (int32_t i = 0; i < h.n_blocks + h.n_locals; i++) add_piece(file, s, PAGE_BYTES, &sum);
    sum ^= next_byte(s) == 0xFF; /* seldom a wrong one */
    buf_add(file, &sum, sizeof sum);
}

static int read_pages(struct prefix_reader *r, const struct saved *lists, struct carat_error *err)
{
    char page[PAGE_BYTES];
    for (int32_t i = 0; i < lists->n_blocks + lists->n_locals; i++)
        TRY(prefix_reader_page(r, page, sizeof page, err));
    return prefix_reader_end(r, err);
}

static int take_in(struct prefix_reader *r, struct prefix_cache *c, struct carat_error *err)
{
    struct saved lists;
    TRY(prefix_reader_match(r, &origin, err));
    TRY(prefix_reader_lists(r, c, VOCAB, &lists, err));
    struct saved_part part = saved_fitting(&lists, c);
    saved_take_pages(&lists, c, part);
    int status = read_pages(r, &lists, err);
    if (status)
        saved_leave_pages(&lists, c, part);
    else
        saved_restore(&lists, c, part);
    saved_close(&lists);
    return status;
}

/* What was put in can be listed again, all of it and a part. */
static void check_lists(const struct prefix_cache *c)
{
    for (uint64_t most = 100; most < 100000; most *= 6) {
        const struct saved_costs costs = {.block = 40, .local = 8, .anchor = 24, .most = most};
        struct saved lists;
        carat_assert(saved_list(&lists, c, &costs, NULL) == CARAT_OK);
        carat_assert(!saved_problem(&lists, c, VOCAB));
        saved_close(&lists);
    }
}

static void check_file(struct prefix_cache *c, const char *path)
{
    struct prefix_reader r;
    struct carat_error err = {0};
    int status = prefix_reader_open(&r, path, &err);
    if (!status) status = take_in(&r, c, &err);
    prefix_reader_close(&r);
    carat_assert(status == CARAT_OK || err.message[0]);
    carat_assert(!prefix_check(c, NULL, 0));
    if (status) carat_assert(prefix_count(c).n_nodes == 0);
    check_lists(c);
    prefix_flush(c);
    for (int kind = 0; kind < KV_KINDS; kind++)
        carat_assert(prefix_pool(c, (enum kv_kind)kind)->n_free == PAGES - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct prefix_options options = {
        .page = PAGE, .window = WINDOW, .n_pages = {PAGES, PAGES}, .seed = 1};
    struct source s = {data, size, 0};
    struct arena arena = {0};
    struct prefix_cache *c;
    struct buf file = {0};
    carat_assert(prefix_open(&c, &arena, &options, NULL) == CARAT_OK);
    if (next_byte(&s) & 1)
        add_file(&file, &s, saved_refs(c));
    else
        buf_add(&file, data, size);
    check_file(c, file.length == 1 ? "/dev/null/prefixes" : save(buf_text(&file), file.length));
    buf_deinit(&file);
    arena_deinit(&arena);
    return 0;
}
