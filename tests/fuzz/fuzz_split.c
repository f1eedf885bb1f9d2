/* Files split into parts: up to four are written to a folder, with keys and tensors as the input
 * says, some cut short, some left out; each is named in turn, to open all of them. What is refused
 * says why, what is opened is read from end to end.
 *
 * Subject: src/gguf/split.c 100
 * Subject: src/gguf/gguf.c 60 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "fuzz/source.h"
#include "support/gguf_writer.h"
#include "support/gguf_walk.h"
#include "support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARTS_MAX = 4, TENSORS_MAX = 3 };

static struct scratch folder; /* one for all inputs */

/* A number near the right one, or any. */
static int64_t about(struct source *s, int64_t right)
{
    uint8_t choice = next_byte(s);
    return choice < 200 ? right : choice < 240 ? right + choice % 5 - 2 : (int32_t)next_u32(s);
}

/* Mostly the type of the format, sometimes another one. */
static void put_number(struct gguf_writer *w, const char *key, struct source *s, int64_t right)
{
    int64_t value = about(s, right);
    switch (next_byte(s) % 24) {
    case 0: break; /* left out */
    case 1: gguf_put_text(w, key, "1"); break;
    case 2: gguf_put_f32(w, key, (float)value); break;
    case 3: gguf_put_u64(w, key, (uint64_t)value); break;
    case 4: gguf_put_i32(w, key, (int32_t)value); break;
    case 5: gguf_put_u8(w, key, (uint8_t)value); break;
    case 6: gguf_put_u32(w, key, (uint32_t)value); break;
    default: gguf_put_u16(w, key, (uint16_t)value); break;
    }
}

static void fill_part(struct gguf_writer *w, struct source *s, int index, int n_parts,
                      int n_tensors_all)
{
    static const char *const architectures[] = {"gemma4", "gemma4", "gemma4", "llama"};
    char name[32];
    float values[32] = {1, 2, 3};
    int64_t dims[1] = {32};
    uint8_t flags = next_byte(s);
    if (index == 0 || flags & 4) gguf_put_text(w, "general.architecture", architectures[flags % 4]);
    if (flags == 255) gguf_put_u32(w, "general.architecture", 4);
    put_number(w, "split.no", s, index);
    put_number(w, "split.count", s, n_parts);
    put_number(w, "split.tensors.count", s, n_tensors_all);
    for (int i = 0; i < n_tensors_all / n_parts; i++) {
        int number = next_byte(s) < 250 ? index * TENSORS_MAX + i : i; /* or a name a second time */
        snprintf(name, sizeof name, "t%d", number);
        gguf_add_values(w, name, FORMAT_F32, dims, 1, values);
    }
}

static void write_bytes(const char *path, const void *data, size_t n)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    carat_assert(file >= 0 && write(file, data, n) == (ssize_t)n);
    close(file);
}

static void write_part(const char *path, struct source *s, int index, int n_parts, int n_tensors)
{
    struct gguf_writer w = {0};
    struct buf image = {0};
    struct carat_error err;
    fill_part(&w, s, index, n_parts, n_tensors);
    carat_assert(gguf_save_image(&w, &image, &err) == CARAT_OK);
    uint8_t damage = next_byte(s);
    size_t n = image.length;
    if (damage >= 250) n = n * (size_t)(damage - 250) / 8;
    if (damage == 249) image.data[next_u32(s) % n] ^= next_byte(s);
    if (damage != 248) write_bytes(path, image.data, n);
    buf_deinit(&image);
    gguf_writer_deinit(&w);
}

static void path_of(char out[512], int number, int count)
{
    char name[64];
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number, count);
    scratch_file(&folder, name, out);
}

static void open_and_walk(const char *path)
{
    struct carat_error err = {0};
    struct gguf *g = NULL;
    int status = gguf_open(&g, path, &err);
    carat_assert((status == CARAT_OK) == (g != NULL));
    carat_assert(status == CARAT_OK ||
                 (err.message[0] && (status == CARAT_EFORMAT || status == CARAT_EMEMORY)));
    if (g) gguf_walk(g);
    gguf_close(g);
}

static void close_folder(void)
{
    scratch_close(&folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = {data, size, 0};
    char paths[PARTS_MAX][512], odd[512];
    if (!folder.path[0]) {
        scratch_open(&folder);
        atexit(close_folder);
    }
    int n_parts = 1 + next_byte(&s) % PARTS_MAX, n_tensors = next_byte(&s) % (TENSORS_MAX + 1);
    int named = (int)about(&s, n_parts) & 0xFFFF;
    long live = mem_blocks_live();
    for (int i = 0; i < n_parts; i++) {
        path_of(paths[i], i + 1, named);
        write_part(paths[i], &s, i, n_parts, n_tensors * n_parts);
    }
    for (int i = 0; i < n_parts; i++) open_and_walk(paths[i]);
    scratch_file(&folder, "other.gguf", odd);
    if (rename(paths[0], odd) == 0) open_and_walk(odd);
    unlink(odd);
    for (int i = 0; i < n_parts; i++) unlink(paths[i]);
    carat_assert(mem_blocks_live() == live);
    return 0;
}
