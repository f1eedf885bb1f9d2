/* Malformed containers: header, keys, values, tensors, and files that are not GGUF at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "support/gguf_patch.h"
#include "support/hostile.h"

/* ---- Makers shared by many rows --------------------------------------------------------- */

/* A file of these bytes: `text`, `number` of them (0: the text's length). */
static void whole_file(struct hostile_maker *m)
{
    size_t n = m->test->number ? (size_t)m->test->number : strlen(m->test->text);
    buf_add(&m->image, m->test->text, n);
}

static void empty_file(struct hostile_maker *m)
{
    scratch_write(m->scratch, "model.gguf", "", 0);
    m->is_saved = true;
}

/* The first `number` bytes of a valid file. */
static void first_bytes(struct hostile_maker *m)
{
    maker_image(m);
    patch_cut(&m->image, (size_t)m->test->number);
}

/* A valid file without its last `number` bytes. */
static void without_last(struct hostile_maker *m)
{
    maker_image(m);
    patch_cut(&m->image, m->image.length - (size_t)m->test->number);
}

/* `number` in `field & 0xff` bytes at the fixed place `field >> 8`. */
#define HEADER_FIELD(at, bytes) ((at) << 8 | (bytes))
static void header_field(struct hostile_maker *m)
{
    maker_image(m);
    patch(&m->image, (size_t)m->test->field >> 8, m->test->number, m->test->field & 0xff);
}

enum key_field { KEY_LENGTH, KEY_TEXT, KEY_TYPE, KEY_BYTE, KEY_U32, KEY_U64, KEY_COUNT };

static void key_field(struct hostile_maker *m)
{
    struct key_spot s;
    maker_image(m);
    bool found = find_key_spot(&m->image, m->test->object, &s);
    carat_assert(found);
    switch ((enum key_field)m->test->field) {
    case KEY_LENGTH: patch(&m->image, s.length_at, m->test->number, 8); break;
    case KEY_TEXT: patch(&m->image, s.text_at, m->test->number, 1); break;
    case KEY_TYPE: patch(&m->image, s.type_at, m->test->number, 4); break;
    case KEY_BYTE: patch(&m->image, s.value_at, m->test->number, 1); break;
    case KEY_U32: patch(&m->image, s.value_at, m->test->number, 4); break;
    case KEY_U64: patch(&m->image, s.value_at, m->test->number, 8); break;
    case KEY_COUNT: patch(&m->image, s.value_at + 4, m->test->number, 8); break;
    }
}

enum tensor_field {
    TENSOR_LENGTH,
    TENSOR_TEXT,
    TENSOR_DIMS,
    TENSOR_DIM0,
    TENSOR_DIM1,
    TENSOR_TYPE,
    TENSOR_OFFSET
};

static void tensor_field(struct hostile_maker *m)
{
    struct tensor_spot s;
    maker_image(m);
    bool found = find_tensor_spot(&m->image, m->test->object, &s);
    carat_assert(found);
    switch ((enum tensor_field)m->test->field) {
    case TENSOR_LENGTH: patch(&m->image, s.length_at, m->test->number, 8); break;
    case TENSOR_TEXT: patch(&m->image, s.text_at, m->test->number, 1); break;
    case TENSOR_DIMS: patch(&m->image, s.n_dims_at, m->test->number, 4); break;
    case TENSOR_DIM0: patch(&m->image, s.dims_at, m->test->number, 8); break;
    case TENSOR_DIM1: patch(&m->image, s.dims_at + 8, m->test->number, 8); break;
    case TENSOR_TYPE: patch(&m->image, s.type_at, m->test->number, 4); break;
    case TENSOR_OFFSET: patch(&m->image, s.offset_at, m->test->number, 8); break;
    }
}

/* ---- One row each ----------------------------------------------------------------------- */

static void header_only(struct hostile_maker *m)
{
    buf_add(&m->image, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
}

/* 65536 tensors of the smallest size, one after the other, all called the same. */
static void many_tensors(struct hostile_maker *m)
{
    static const uint8_t head[21] = {1, 0, 0, 0, 0, 0, 0, 0, 'x', 1, 0, 0, 0, 1};
    static const uint8_t data[32] = {0};
    header_only(m);
    patch(&m->image, AT_TENSOR_COUNT, 65536, 8);
    for (uint64_t i = 0; i < 65536; i++) {
        uint64_t offset = i * sizeof data;
        buf_add(&m->image, head, sizeof head);
        buf_add(&m->image, data, 4); /* type F32 */
        buf_add(&m->image, &offset, 8);
    }
    for (int i = 0; i < 65537; i++) buf_add(&m->image, data, sizeof data);
}

/* 65536 keys whose names differ in their last digits only. */
static void many_keys(struct hostile_maker *m)
{
    header_only(m);
    patch(&m->image, AT_KEY_COUNT, 65536, 8);
    for (int i = 0; i < 65536; i++) {
        char key[48];
        snprintf(key, sizeof key, "general.the.same.beginning.%05d", i % 65535);
        buf_add(&m->image, "\x20\0\0\0\0\0\0\0", 8);
        buf_add(&m->image, key, 32);
        buf_add(&m->image, "\0\0\0\0\1", 5); /* u8 1 */
    }
}

static void long_key(struct hostile_maker *m)
{
    char *key = malloc(65536);
    carat_assert(key);
    memset(key, 'k', 65536);
    gguf_put_raw(&m->writer, key, 65536, GGUF_U8, "\1", 1);
    free(key);
}

static void array_of_arrays(struct hostile_maker *m)
{
    gguf_put_raw(&m->writer, "nested", 6, GGUF_ARRAY, "\x9\0\0\0\1\0\0\0\0\0\0\0", 12);
}

/* Arrays of arrays, 10000 deep: what a recursive reader would follow. */
static void deep_arrays(struct hostile_maker *m)
{
    struct buf value = {0};
    for (int i = 0; i < 10000; i++) buf_add(&value, "\x9\0\0\0\1\0\0\0\0\0\0\0", 12);
    gguf_put_raw(&m->writer, "nested", 6, GGUF_ARRAY, value.data, value.length);
    buf_deinit(&value);
}

static void raw_array(struct hostile_maker *m)
{
    struct buf value = {0};
    uint32_t type = (uint32_t)m->test->field;
    buf_add(&value, &type, 4);
    buf_add(&value, &m->test->number, 8);
    gguf_put_raw(&m->writer, "a.list", 6, GGUF_ARRAY, value.data, value.length);
    buf_deinit(&value);
}

static void cut_in_array(struct hostile_maker *m)
{
    struct key_spot s;
    maker_image(m);
    find_key_spot(&m->image, "tokenizer.ggml.tokens", &s);
    patch_cut(&m->image, s.value_at + (s.end - s.value_at) / 2);
}

/* The key again, as another entry: made by renaming one of the same length. */
static void duplicate_key(struct hostile_maker *m)
{
    static const char string[] = "\1\0\0\0\0\0\0\0x";
    struct key_spot s;
    bool is_text = m->test->field == GGUF_STRING;
    gguf_put_raw(&m->writer, "general.archiTECTURE", 20, (uint32_t)m->test->field,
                 is_text ? string : "x", is_text ? 9 : 1);
    maker_image(m);
    find_key_spot(&m->image, "general.archiTECTURE", &s);
    memcpy(m->image.data + s.text_at, "general.architecture", 20);
}

static void put_alignment(struct hostile_maker *m)
{
    m->writer.alignment = 32;
    gguf_put_u32(&m->writer, "general.alignment", (uint32_t)m->test->number);
}

static void alignment_i32(struct hostile_maker *m)
{
    gguf_put_i32(&m->writer, "general.alignment", 32);
}

static void alignment_text(struct hostile_maker *m)
{
    gguf_put_text(&m->writer, "general.alignment", "32");
}

static void rename_tensor(struct hostile_maker *m)
{
    struct tensor_spot s;
    maker_image(m);
    find_tensor_spot(&m->image, m->test->object, &s);
    patch_replace(&m->image, s.length_at, s.n_dims_at - s.length_at, NULL, 0);
    uint64_t n = m->test->number;
    struct buf name = {0};
    buf_add(&name, &n, 8);
    for (uint64_t i = 0; i < n; i++) buf_add_char(&name, m->test->text[i % strlen(m->test->text)]);
    patch_replace(&m->image, s.length_at, 0, name.data, name.length);
    buf_deinit(&name);
}

/* Legal: names with formats and paths in them, of a tensor that nothing needs. */
static void odd_tensor_name(struct hostile_maker *m)
{
    static const int64_t row[] = {32};
    gguf_add_bytes(&m->writer, "../x%n%s", 0, row, 1, NULL, 128);
}

/* Legal as well, but a terminal must not obey what is printed from it. */
static void escapes_in_names(struct hostile_maker *m)
{
    static const int64_t row[] = {32};
    gguf_add_bytes(&m->writer, "\x1b[2J\x1b]0;title\x07\n\xc2\x9b", 0, row, 1, NULL, 128);
    gguf_put_text(&m->writer, "\x1b[2Jkey", "\x1b[31mred\x07\r\n");
}

static void all_dims_huge(struct hostile_maker *m)
{
    struct tensor_spot s;
    maker_image(m);
    find_tensor_spot(&m->image, "blk.0.attn_q.weight", &s);
    patch(&m->image, s.dims_at, UINT64_C(1) << 40, 8);
    patch(&m->image, s.dims_at + 8, UINT64_C(1) << 40, 8);
}

/* Every size up to here fits in 64 bits; offset + size does not. */
static void end_wraps(struct hostile_maker *m)
{
    struct tensor_spot s;
    maker_image(m);
    find_tensor_spot(&m->image, "token_embd.weight", &s);
    patch(&m->image, s.dims_at + 8, UINT64_C(1) << 40, 8);
    find_tensor_spot(&m->image, "output_norm.weight", &s);
    patch(&m->image, s.offset_at, UINT64_MAX - 31, 8);
}

static void tensors_swapped(struct hostile_maker *m)
{
    struct tensor_spot a, b;
    uint64_t first, second;
    maker_image(m);
    find_tensor_spot(&m->image, "blk.0.attn_norm.weight", &a);
    find_tensor_spot(&m->image, "blk.0.ffn_norm.weight", &b);
    memcpy(&first, m->image.data + a.offset_at, 8);
    memcpy(&second, m->image.data + b.offset_at, 8);
    patch(&m->image, a.offset_at, second, 8);
    patch(&m->image, b.offset_at, first, 8);
}

static void no_data(struct hostile_maker *m)
{
    maker_image(m);
    patch_cut(&m->image, directory_end(&m->image));
}

static void trailing_garbage(struct hostile_maker *m)
{
    maker_image(m);
    for (int i = 0; i < 1000; i++) buf_add(&m->image, "garbage\n", 8);
}

/* 5 GiB of holes after everything else: an unused F32 tensor. */
static void sparse_file(struct hostile_maker *m)
{
    static const int64_t dims[] = {INT64_C(1) << 20, 1280};
    gguf_add_bytes(&m->writer, "v.huge", 0, dims, 2, NULL, 0);
    maker_image(m);
    scratch_write(m->scratch, "model.gguf", m->image.data, m->image.length);
    int status = truncate(m->path, (off_t)m->image.length + (INT64_C(5) << 30));
    carat_assert(status == 0);
    m->is_saved = true;
}

static void extra_tensors(struct hostile_maker *m)
{
    static const int64_t dims[] = {256, 2};
    gguf_add_bytes(&m->writer, "v.blk.0.attn.weight", 16, dims, 2, NULL, 132); /* IQ2_XXS */
    gguf_add_bytes(&m->writer, "mm.input", 24, dims, 2, NULL, 512);            /* I8 */
}

/* ---- Not a file of ours ----------------------------------------------------------------- */

static void folder(struct hostile_maker *m)
{
    mkdir(m->path, 0700);
    m->is_saved = true;
}

static void fifo(struct hostile_maker *m)
{
    mkfifo(m->path, 0600);
    m->is_saved = true;
}

static void device(struct hostile_maker *m)
{
    snprintf(m->path, sizeof m->path, "/dev/zero");
    m->is_saved = true;
}

static void unix_socket(struct hostile_maker *m)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(m->path) < sizeof address.sun_path) {
        memcpy(address.sun_path, m->path, strlen(m->path) + 1);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        int status = bind(fd, (struct sockaddr *)&address, sizeof address);
        carat_assert(status == 0);
        close(fd);
    }
    m->is_saved = true;
}

static void link_loop(struct hostile_maker *m)
{
    int status = symlink(m->path, m->path);
    carat_assert(status == 0);
    m->is_saved = true;
}

static void missing_file(struct hostile_maker *m)
{
    m->is_saved = true;
}

/* ---- Split files ------------------------------------------------------------------------ */

static void save_part(struct hostile_maker *m, const char *name)
{
    maker_image(m);
    scratch_write(m->scratch, name, m->image.data, m->image.length);
    scratch_file(m->scratch, name, m->path);
    buf_deinit(&m->image);
    m->is_saved = true;
}

static void part_missing(struct hostile_maker *m)
{
    gguf_put_u16(&m->writer, "split.no", 0);
    gguf_put_u16(&m->writer, "split.count", 3);
    save_part(m, "model-00001-of-00003.gguf");
}

static void part_repeated(struct hostile_maker *m)
{
    gguf_put_u16(&m->writer, "split.no", 0);
    gguf_put_u16(&m->writer, "split.count", 2);
    save_part(m, "model-00002-of-00002.gguf");
    save_part(m, "model-00001-of-00002.gguf");
}

static void part_count(struct hostile_maker *m)
{
    gguf_put_u16(&m->writer, "split.no", 0);
    gguf_put_u16(&m->writer, "split.count", 7);
    save_part(m, "model-00001-of-00002.gguf");
}

static void part_without_keys(struct hostile_maker *m)
{
    save_part(m, "model-00001-of-00002.gguf");
}

static void part_of_a_million(struct hostile_maker *m)
{
    gguf_put_u16(&m->writer, "split.no", 0);
    gguf_put_u32(&m->writer, "split.count", 1000000);
    save_part(m, "model-00001-of-00002.gguf");
}

static void part_architecture(struct hostile_maker *m)
{
    gguf_put_u16(&m->writer, "split.no", 0);
    gguf_put_u16(&m->writer, "split.count", 2);
    save_part(m, "model-00001-of-00002.gguf");
    gguf_put_u16(&m->writer, "split.no", 1);
    gguf_put_text(&m->writer, "general.architecture", "llama");
    save_part(m, "model-00002-of-00002.gguf");
}

/* clang-format off */
#define WHOLE(title, bytes, says) \
    {.name = title, .make = whole_file, .text = bytes, .number = sizeof bytes - 1, .expected = says}
#define CUT(n) {.name = "the first " #n " bytes", .make = first_bytes, .number = n, \
                .expected = "at least 24"}
#define HEADER(title, at, bytes, value, says) \
    {.name = title, .make = header_field, .field = HEADER_FIELD(at, bytes), .number = value, \
     .expected = says}
#define KEY(title, key, where, value, says) \
    {.name = title, .make = key_field, .object = key, .field = where, .number = value, \
     .expected = says}
#define TENSOR(title, tensor, where, value, says) \
    {.name = title, .make = tensor_field, .object = tensor, .field = where, .number = value, \
     .expected = says}
#define ARRAY(title, type, count, says) \
    {.name = title, .make = raw_array, .field = type, .number = count, .expected = says}
#define ALIGNMENT(value) \
    {.name = "alignment " #value, .make = put_alignment, .number = value, \
     .expected = "\"general.alignment\": is " #value}
/* clang-format on */

static const char zeros[64] = {0};
#define BLOCK0 "blk.0.attn_q.weight"
#define ARCH "general.architecture"
#define TOKENS "tokenizer.ggml.tokens"

static const struct hostile_case cases[] = {
    {.name = "empty file", .make = empty_file, .expected = "the file is empty"},
    CUT(1),
    CUT(3),
    CUT(4),
    CUT(7),
    CUT(8),
    CUT(15),
    CUT(16),
    CUT(23),
    HEADER("bad magic", AT_MAGIC, 4, 0x4c4c4548, "\"GGUF\" is expected"),
    HEADER("big-endian magic", AT_MAGIC, 4, 0x47475546, "big-endian"),
    HEADER("version 0", AT_VERSION, 4, 0, "version 0 is not supported"),
    HEADER("version 1", AT_VERSION, 4, 1, "version 1 is not supported"),
    HEADER("version 2", AT_VERSION, 4, 2, NULL),
    HEADER("version 4", AT_VERSION, 4, 4, "version 4 is not supported"),
    HEADER("big-endian version", AT_VERSION, 4, 0x03000000, "big-endian"),
    HEADER("2^63 tensors", AT_TENSOR_COUNT, 8, UINT64_C(1) << 63, "the tensor count is"),
    HEADER("2^64-1 tensors", AT_TENSOR_COUNT, 8, UINT64_MAX, "the tensor count is"),
    HEADER("65537 tensors", AT_TENSOR_COUNT, 8, 65537, "at most 65536"),
    HEADER("10^6 tensors", AT_TENSOR_COUNT, 8, 1000000, "at most 65536"),
    HEADER("2^63 keys", AT_KEY_COUNT, 8, UINT64_C(1) << 63, "the key count is"),
    HEADER("2^64-1 keys", AT_KEY_COUNT, 8, UINT64_MAX, "the key count is"),
    HEADER("65537 keys", AT_KEY_COUNT, 8, 65537, "at most 65536"),
    HEADER("30000 keys", AT_KEY_COUNT, 8, 30000, "of 30000"),
    {.name = "header and nothing else", .make = header_only, .expected = ARCH},
    {.name = "65536 tensors of one name", .make = many_tensors, .expected = "\"x\": occurs twice"},
    {.name = "65536 keys, two alike", .make = many_keys, .expected = "occurs twice"},

    KEY("key length 2^64-1", ARCH, KEY_LENGTH, UINT64_MAX, "a key of 18446744073709551615 bytes"),
    KEY("key length 2^63", ARCH, KEY_LENGTH, UINT64_C(1) << 63, "a key of 9223372036854775808"),
    KEY("key longer than the file", ARCH, KEY_LENGTH, 1 << 30, "a key of 1073741824 bytes"),
    KEY("key of 60000 bytes", ARCH, KEY_LENGTH, 60000, "not valid UTF-8"),
    KEY("empty key", ARCH, KEY_LENGTH, 0, "a key of 0 bytes"),
    KEY("key not UTF-8", ARCH, KEY_TEXT, 0xff, "not valid UTF-8"),
    KEY("key with NUL", ARCH, KEY_TEXT, 0, "not valid UTF-8"),
    {.name = "key of 65536 bytes", .make = long_key, .expected = "a key of 65536 bytes"},
    KEY("value type 13", ARCH, KEY_TYPE, 13, "\"" ARCH "\": value type 13"),
    KEY("value type 255", ARCH, KEY_TYPE, 255, "value type 255"),
    KEY("value type -1", ARCH, KEY_TYPE, UINT32_MAX, "value type 4294967295"),
    KEY("bool byte 2", "tokenizer.ggml.add_bos_token", KEY_BYTE, 2, "the byte 2"),
    KEY("bools of other bytes in an array", "gemma4.attention.sliding_window_pattern", KEY_COUNT,
        4096, "0 or 1 is expected"),
    KEY("string length wraps", ARCH, KEY_U64, UINT64_MAX - 8, "\"" ARCH "\": a string of"),
    KEY("string longer than the file", ARCH, KEY_U64, 1 << 30, "does not fit in the file"),
    {.name = "array of arrays", .make = array_of_arrays, .expected = "array of arrays"},
    {.name = "arrays 10000 deep", .make = deep_arrays, .expected = "array of arrays"},
    ARRAY("array element type 255", 255, 1, "element type 255"),
    ARRAY("array of 2^61 u64", GGUF_U64, UINT64_C(1) << 61, "\"a.list\": an array of"),
    ARRAY("array of 2^64-1 u8", GGUF_U8, UINT64_MAX, "\"a.list\": an array of"),
    ARRAY("array of 10^12 strings", GGUF_STRING, UINT64_C(1000000000000),
          "\"a.list\": an array of 1000000000000 strings"),
    {.name = "array of strings cut", .make = cut_in_array, .expected = TOKENS},
    {.name = "duplicate key",
     .make = duplicate_key,
     .field = GGUF_STRING,
     .expected = "\"" ARCH "\": occurs twice"},
    {.name = "duplicate key of another type",
     .make = duplicate_key,
     .field = GGUF_U8,
     .expected = "\"" ARCH "\": occurs twice"},

    ALIGNMENT(0),
    ALIGNMENT(1),
    ALIGNMENT(3),
    ALIGNMENT(13),
    ALIGNMENT(2147483648),
    ALIGNMENT(4294967295),
    {.name = "alignment larger than used",
     .make = put_alignment,
     .number = 4096,
     .expected = "tensor \""},
    {.name = "alignment as i32", .make = alignment_i32, .expected = "is i32, u32 is expected"},
    {.name = "alignment as string", .make = alignment_text, .expected = "is string, u32"},
    TENSOR("tensor name of no bytes", BLOCK0, TENSOR_LENGTH, 0, "a tensor name of 0 bytes"),
    TENSOR("tensor name of 10^6 bytes", BLOCK0, TENSOR_LENGTH, 1000000, "1 to 63"),
    {.name = "tensor name of 64 bytes",
     .make = rename_tensor,
     .object = BLOCK0,
     .number = 64,
     .text = "name",
     .expected = "a tensor name of 64 bytes"},
    TENSOR("tensor name not UTF-8", BLOCK0, TENSOR_TEXT, 0xff, "\"\\xfflk.0.attn_q.weight\""),
    {.name = "tensor name with a path and formats", .make = odd_tensor_name},
    {.name = "escape sequences in names", .make = escapes_in_names},
    {.name = "duplicate tensor",
     .make = rename_tensor,
     .object = "blk.1.attn_norm.weight",
     .number = 22,
     .text = "blk.0.attn_norm.weight",
     .expected = "\"blk.0.attn_norm.weight\""},
    TENSOR("no dimensions", BLOCK0, TENSOR_DIMS, 0, "has 0 dimensions"),
    TENSOR("5 dimensions", BLOCK0, TENSOR_DIMS, 5, "has 5 dimensions"),
    TENSOR("2^32-1 dimensions", BLOCK0, TENSOR_DIMS, UINT32_MAX, "has 4294967295 dimensions"),
    TENSOR("dimension 0", BLOCK0, TENSOR_DIM1, 0, "\"" BLOCK0 "\": dimension 1 is 0"),
    TENSOR("dimension -1", BLOCK0, TENSOR_DIM0, UINT64_MAX, "dimension 0 is 1844674407370955161"),
    TENSOR("dimension 2^63", BLOCK0, TENSOR_DIM0, UINT64_C(1) << 63, "dimension 0 is 92233720368"),
    TENSOR("dimension 2^42+1", BLOCK0, TENSOR_DIM1, (UINT64_C(1) << 42) + 1, "dimension 1 is"),
    {.name = "product of dimensions wraps", .make = all_dims_huge, .expected = "elements"},
    TENSOR("row not whole blocks", BLOCK0, TENSOR_DIM0, 33, "a row has 33 elements"),
    TENSOR("removed type 4", BLOCK0, TENSOR_TYPE, 4, "\"" BLOCK0 "\": has the type number 4"),
    TENSOR("removed type 5", BLOCK0, TENSOR_TYPE, 5, "type number 5"),
    TENSOR("removed type 31", BLOCK0, TENSOR_TYPE, 31, "type number 31"),
    TENSOR("unknown type 43", BLOCK0, TENSOR_TYPE, 43, "type number 43"),
    TENSOR("unknown type 10^6", BLOCK0, TENSOR_TYPE, 1000000, "type number 1000000"),
    TENSOR("type F64 for a weight", BLOCK0, TENSOR_TYPE, 28, "tensor \"blk.0."),
    TENSOR("offset not aligned", BLOCK0, TENSOR_OFFSET, 33, "no multiple of the alignment"),
    TENSOR("offset 2^63", BLOCK0, TENSOR_OFFSET, UINT64_C(1) << 63, "gaps between tensors"),
    TENSOR("offset of another tensor", BLOCK0, TENSOR_OFFSET, 0, "overlaps another tensor"),
    {.name = "end of a tensor wraps",
     .make = end_wraps,
     .expected = "tensor \"token_embd.weight\""},
    {.name = "tensors out of order", .make = tensors_swapped, .expected = "gaps between tensors"},
    /* The last tensor is one float, followed by 28 bytes of padding. */
    {.name = "last tensor cut by a byte",
     .make = without_last,
     .number = 29,
     .expected = "tensor \"blk.5.layer_output_scale.weight\""},
    {.name = "a page cut off",
     .make = without_last,
     .number = 4096,
     .expected = "end past the end of the file"},
    {.name = "no data at all", .make = no_data, .expected = "tensor \"token_embd.weight\""},
    {.name = "trailing garbage", .make = trailing_garbage},
    {.name = "sparse file of 5 GiB", .make = sparse_file},
    {.name = "extra tensors of foreign types", .make = extra_tensors},

    {.name = "part missing", .make = part_missing, .expected = "part 2 of 3"},
    {.name = "part repeated", .make = part_repeated, .expected = "\"split.no\": is 0, 1"},
    {.name = "part count wrong", .make = part_count, .expected = "the name says part 1 of 2"},
    {.name = "part without keys", .make = part_without_keys, .expected = "\"split.count\""},
    {.name = "one of a million parts", .make = part_of_a_million, .expected = "is 1000000, at"},
    {.name = "part of another model",
     .make = part_architecture,
     .expected = "the architecture is \"llama\""},

    WHOLE("safetensors", "\x40\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}      ", "GGUF"),
    WHOLE("zip", "PK\3\4\x14\0\0\0\x08\0aaaaaaaaaaaaaaaaaaaaaaaa", "\"GGUF\" is expected"),
    WHOLE("ELF",
          "\x7f"
          "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\x3e\0\1\0\0\0",
          "\"\\x7fELF\""),
    WHOLE("gzip", "\x1f\x8b\x08\0\0\0\0\0\0\3aaaaaaaaaaaaaaaaaaaaaaaa", "\"\\x1f\\x8b\\x08\\x00\""),
    WHOLE("zstd", "\x28\xb5\x2f\xfd\x24\0aaaaaaaaaaaaaaaaaaaaaaaa", "\"GGUF\" is expected"),
    WHOLE("text", "This is no model file, it is a letter.\n", "\"This\""),
    {.name = "zeros",
     .make = whole_file,
     .text = zeros,
     .number = sizeof zeros,
     .expected = "\"GGUF\" is expected"},
    {.name = "folder", .make = folder, .expected = "this is a directory"},
    {.name = "FIFO", .make = fifo, .expected = "a regular file is expected"},
    {.name = "device", .make = device, .expected = "a regular file is expected"},
    {.name = "socket", .make = unix_socket, .expected = "cannot be opened"},
    {.name = "symlink loop", .make = link_loop, .expected = "cannot be opened"},
    {.name = "missing file", .make = missing_file, .expected = "model.gguf"},
};

struct hostile_list hostile_container_cases(void)
{
    return (struct hostile_list){.cases = cases, .n = sizeof cases / sizeof *cases};
}
