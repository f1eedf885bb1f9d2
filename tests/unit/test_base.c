/* The foundations: memory, arenas, buffers, UTF-8, JSON, random numbers, files, errors. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_JSON
#include <jansson.h>
#endif

#include "base/arena.h"
#include "base/buf.h"
#include "base/calendar.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/pointer.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/utf8.h"
#include "support/scratch.h"

enum { SEED = 5, CODE_POINTS = 0x110000 };

static int check_blocks(void **state)
{
    (void)state;
    mem_fail_after(-1);
    return mem_blocks_live() == 0 ? 0 : -1;
}

/* ---- hash ------------------------------------------------------------------------------- */

/* Values of hash() of bytes in Python 3.11 with PYTHONHASHSEED=0. */
static void hash_is_siphash_1_3(void **state)
{
    (void)state;
    const struct hash_key zero = {0, 0};
    unsigned char bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)i;
    assert_true(hash_bytes(zero, "a", 1) == 0x407448d2b89b1813u);
    assert_true(hash_bytes(zero, "abcdefg", 7) == 0x6db12aae9070f506u);
    assert_true(hash_bytes(zero, "abcdefgh", 8) == 0x3f7b849c0b8e35eau);
    assert_true(hash_bytes(zero, "abcdefghi", 9) == 0xf89b34a3d11eb6e5u);
    assert_true(hash_bytes(zero, bytes, 64) == 0x75e05fd5bbc870c6u);
}

/* Texts that were searched for so that all fall into one slot of 256 do not do so under another
 * key. */
static void texts_collide_under_one_key_only(void **state)
{
    (void)state;
    struct hash_key a = hash_key_random(), b = hash_key_random();
    assert_true(a.low != b.low || a.high != b.high);
    int n = 0, n_again = 0;
    for (uint32_t i = 0; n < 1000; i++) {
        if (hash_bytes(a, &i, sizeof i) & 255) continue;
        n++;
        n_again += (hash_bytes(b, &i, sizeof i) & 255) == 0;
    }
    assert_true(n_again < 40); /* 4 expected */
}

/* ---- mem -------------------------------------------------------------------------------- */

static void memory_is_zeroed_and_counted(void **state)
{
    (void)state;
    long before = mem_blocks_live();
    unsigned char *a = mem_alloc(100, 3), *b = mem_alloc(0, 8), *c = mem_resize(NULL, 5, 2);
    assert_true(a && b && c && a != b);
    for (int i = 0; i < 300; i++) assert_int_equal(a[i], 0);
    assert_int_equal(mem_blocks_live(), before + 3);
    a[299] = 7;
    a = mem_resize(a, 10000, 1);
    assert_int_equal(a[299], 7);
    char *text = mem_copy_text("abcdef", 3), *empty = mem_copy_text(NULL, 0);
    assert_string_equal(text, "abc");
    assert_string_equal(empty, "");
    assert_int_equal(mem_blocks_live(), before + 5);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(text);
    mem_free(empty);
    mem_free(NULL);
    assert_int_equal(mem_blocks_live(), before);
}

static void sizes_that_overflow_give_nothing(void **state)
{
    (void)state;
    char *kept = mem_alloc(4, 1);
    kept[0] = 'k';
    assert_null(mem_alloc(SIZE_MAX / 2, 3));
    assert_null(mem_alloc(SIZE_MAX, SIZE_MAX));
    assert_null(mem_resize(kept, SIZE_MAX / 4, 5));
    assert_null(mem_copy_text("x", SIZE_MAX));
    assert_int_equal(kept[0], 'k');
    mem_free(kept);
}

static void allocations_fail_on_purpose(void **state)
{
    (void)state;
    void *blocks[3];
    mem_fail_after(2);
    for (int i = 0; i < 3; i++) blocks[i] = mem_alloc(8, 1);
    assert_true(blocks[0] && blocks[1] && !blocks[2]);
    assert_null(mem_resize(blocks[0], 100, 1)); /* and all later ones; the old block stays */
    assert_int_equal(mem_fail_after(-1), 1);
    assert_int_equal(mem_fail_after(-1), 0); /* reported once */
    blocks[2] = mem_alloc(8, 1);
    assert_non_null(blocks[2]);
    mem_fail_after(5);
    assert_int_equal(mem_fail_after(-1), 0); /* armed, but nothing failed */
    for (int i = 0; i < 3; i++) mem_free(blocks[i]);
}

/* ---- arena ------------------------------------------------------------------------------ */

static void arena_memory_is_aligned_zeroed_and_disjoint(void **state)
{
    (void)state;
    enum { N = 400 };
    struct arena a = {0};
    struct rng rng = {.state = SEED};
    unsigned char *taken[N];
    size_t sizes[N], sum = 0;
    for (int i = 0; i < N; i++) {
        sizes[i] = rng_below(&rng, i % 20 ? 700 : 200000);
        taken[i] = arena_take(&a, sizes[i], 1);
        assert_non_null(taken[i]);
        assert_int_equal((uintptr_t)taken[i] % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(taken[i][k], 0);
        memset(taken[i], i % 251 + 1, sizes[i]);
        sum += sizes[i];
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(taken[i][k], i % 251 + 1);
    assert_true(a.bytes >= sum && a.bytes < sum + N * 64);
    assert_string_equal(arena_copy_text(&a, "text and more", 4), "text");
    arena_deinit(&a);
    assert_null(a.blocks);
    assert_non_null(arena_take(&a, 1, 1)); /* usable again */
    arena_deinit(&a);
    arena_deinit(&a);
}

static void a_large_take_does_not_waste_the_newest_block(void **state)
{
    (void)state;
    struct arena a = {0};
    char *first = arena_take(&a, 64, 1);
    long blocks = mem_blocks_live();
    assert_non_null(arena_take(&a, 1 << 20, 1));
    assert_int_equal(mem_blocks_live(), blocks + 1);
    assert_ptr_equal(arena_take(&a, 64, 1), first + 64);
    arena_deinit(&a);
}

static void an_arena_out_of_memory_gives_nothing_and_stays_valid(void **state)
{
    (void)state;
    struct arena a = {0};
    assert_null(arena_take(&a, SIZE_MAX / 2, 3));
    assert_null(arena_take(&a, SIZE_MAX, 1));
    assert_null(arena_take(&a, SIZE_MAX - 64, 1));
    assert_null(arena_copy_text(&a, "x", SIZE_MAX));
    assert_int_equal(a.bytes, 0);
    mem_fail_after(0);
    assert_null(arena_take(&a, 8, 1));
    mem_fail_after(-1);
    assert_non_null(arena_take(&a, 8, 1));
    arena_deinit(&a);
}

static void taking_from_a_sealed_arena_is_an_assertion(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct arena a = {0};
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        if (!arena_take(&a, 8, 1)) _exit(3);
        arena_seal(&a);
        arena_take(&a, 8, 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- buf -------------------------------------------------------------------------------- */

static void a_buffer_grows_and_keeps_its_end(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_string_equal(buf_text(&b), "");
    for (int i = 0; i < 5000; i++) buf_printf(&b, "%d,", i);
    buf_add(&b, "a\0b", 3);
    buf_add(&b, NULL, 0);
    buf_add_char(&b, 'c');
    buf_add_text(&b, "");
    assert_false(b.failed);
    assert_int_equal(b.length, 23890 + 4);
    assert_memory_equal(b.data + b.length - 9, "4999,a\0bc", 10);
    buf_clear(&b);
    assert_int_equal(b.length, 0);
    assert_string_equal(buf_text(&b), "");
    buf_printf(&b, "%s", "again");
    assert_string_equal(buf_text(&b), "again");
    buf_deinit(&b);
    buf_deinit(&b);
}

static void a_failed_growth_is_remembered_and_drops_what_follows(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_text(&b, "kept");
    mem_fail_after(0);
    for (int i = 0; i < 100; i++) buf_add_text(&b, "more than fits ");
    mem_fail_after(-1);
    assert_true(b.failed);
    size_t length = b.length;
    buf_add_text(&b, "late");
    assert_int_equal(b.length, length);
    assert_memory_equal(b.data, "kept", 4);
    buf_deinit(&b);
    struct buf huge = {0};
    buf_add(&huge, "x", SIZE_MAX / 2);
    assert_true(huge.failed);
    buf_deinit(&huge);
}

/* ---- utf8 ------------------------------------------------------------------------------- */

static bool is_scalar(uint32_t c)
{
    return c < CODE_POINTS && !(c >= 0xD800 && c <= 0xDFFF);
}

static void every_code_point_is_written_and_read(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < CODE_POINTS; c++) {
        char bytes[4];
        uint32_t found = 0;
        if (!is_scalar(c)) continue;
        int n = utf8_write(c, bytes);
        assert_int_equal(n, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_read(bytes, 4, &found), n);
        assert_int_equal(found, c);
        if (n == 1) continue;
        for (int k = 1; k < n; k++) {
            assert_int_equal(utf8_read(bytes, (size_t)k, &found), 0);
            assert_int_equal(utf8_incomplete_tail(bytes, (size_t)k), k);
        }
        assert_int_equal(utf8_incomplete_tail(bytes, (size_t)n), 0);
        assert_int_equal(utf8_valid_prefix(bytes, (size_t)n), n);
    }
}

/* An independent decoder: builds the value, then asks whether the shortest form has this length. */
static int slow_read(const unsigned char *s, size_t length)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int n = s[0] < 0x80             ? 1
            : (s[0] & 0xE0) == 0xC0 ? 2
            : (s[0] & 0xF0) == 0xE0 ? 3
            : (s[0] & 0xF8) == 0xF0 ? 4
                                    : 0;
    if (n == 0 || (size_t)n > length) return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0xFFu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        c = c * 64 + (s[i] & 0x3Fu);
    }
    return c >= least[n] && is_scalar(c) ? n : 0;
}

/* All pairs and triples of bytes, and quadruples after every lead of four. */
static void every_invalid_sequence_is_refused(void **state)
{
    (void)state;
    static const unsigned char edges[] = {0x41, 0x7F, 0x80, 0x8F, 0x90, 0xA0, 0xBF, 0xC2, 0xFF};
    enum { N = sizeof edges };
    for (int lead = 0; lead < 256; lead++)
        for (int second = 0; second < 256; second++)
            for (int k = 0; k < N * N; k++) {
                unsigned char s[4] = {(unsigned char)lead, (unsigned char)second, edges[k / N],
                                      edges[k % N]};
                for (size_t length = 1; length <= 4; length++) {
                    uint32_t c;
                    if (utf8_read((const char *)s, length, &c) != slow_read(s, length))
                        fail_msg("%02x %02x %02x %02x of %zu", s[0], s[1], s[2], s[3], length);
                }
            }
}

/* A tail is held back exactly when some further bytes make a code point of it. */
static bool can_become_valid(const unsigned char *s, size_t n)
{
    for (int k = 0; k < 64 * 64 * 64; k++) {
        unsigned char whole[7];
        memcpy(whole, s, n);
        whole[n] = (unsigned char)(0x80 | k / 4096);
        whole[n + 1] = (unsigned char)(0x80 | (k / 64) % 64);
        whole[n + 2] = (unsigned char)(0x80 | k % 64);
        int read = slow_read(whole, n + 3);
        if (read > (int)n) return true;
        if (k % 4096 == 0 && n == 3) k += 4095; /* one more byte decides */
    }
    return false;
}

static void what_can_still_become_valid_is_held_back(void **state)
{
    (void)state;
    static const unsigned char leads[] = {0x41, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                                          0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
    static const unsigned char next[] = {0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC2};
    for (size_t i = 0; i < sizeof leads; i++)
        for (size_t k = 0; k < sizeof next * sizeof next; k++)
            for (size_t n = 1; n <= 3; n++) {
                unsigned char s[3] = {leads[i], next[k / sizeof next], next[k % sizeof next]};
                size_t expected = 0;
                for (size_t tail = n; tail >= 1 && !expected; tail--)
                    if (can_become_valid(s + n - tail, tail)) expected = tail;
                if (utf8_incomplete_tail((const char *)s, n) != expected)
                    fail_msg("%02x %02x %02x of %zu: %zu expected, %zu found", s[0], s[1], s[2], n,
                             expected, utf8_incomplete_tail((const char *)s, n));
            }
    assert_int_equal(utf8_incomplete_tail("", 0), 0);
    assert_int_equal(utf8_incomplete_tail("abc\xF0\x9F\x98", 6), 3);
    assert_int_equal(utf8_valid_prefix("", 0), 0);
    assert_int_equal(utf8_valid_prefix("a\0b", 3), 3);
    assert_int_equal(utf8_valid_prefix("abc\xF0\x9F\x98", 6), 3);
    assert_int_equal(utf8_valid_prefix("\xC3\xA4\xFFz", 4), 2);
}

/* ---- json ------------------------------------------------------------------------------- */

static void json_has_its_commas_and_escapes(void **state)
{
    (void)state;
    struct buf b = {0};
    struct json j = {.out = &b};
    json_begin_object(&j);
    json_key_array(&j, "a\"\\");
    json_end_array(&j);
    json_key_array(&j, "b");
    json_int(&j, INT64_MIN);
    json_bool(&j, true);
    json_put_null(&j);
    json_double(&j, NAN);
    json_double(&j, -INFINITY);
    json_begin_object(&j);
    json_end_object(&j);
    json_put_string(&j, "\x01\n\t\r\x7F/");
    json_text(&j, "x\0\xFFy\xE2\x82", 6);
    json_end_array(&j);
    json_end_object(&j);
    assert_string_equal(buf_text(&b), "{\"a\\\"\\\\\":[],\"b\":[-9223372036854775808,true,null,"
                                      "null,null,{},\"\\u0001\\n\\t\\r\\u007f/\","
                                      "\"x\\u0000\xEF\xBF\xBDy\xEF\xBF\xBD\xEF\xBF\xBD\"]}");
    buf_deinit(&b);
}

/* U+0085, U+009B, U+202E and U+2066 are escaped; U+00A0, U+200F, U+200D and U+2070 are text. */
static void json_escapes_what_a_terminal_obeys(void **state)
{
    (void)state;
    struct buf b = {0};
    struct json j = {.out = &b};
    json_put_string(&j, "\xC2\x85\xC2\x9B\xE2\x80\xAE\xE2\x81\xA6"
                        "\xC2\xA0\xE2\x80\x8F\xE2\x80\x8D\xE2\x81\xB0");
    assert_string_equal(buf_text(&b), "\"\\u0085\\u009b\\u202e\\u2066"
                                      "\xC2\xA0\xE2\x80\x8F\xE2\x80\x8D\xE2\x81\xB0\"");
    buf_deinit(&b);
}

static void check_double(double value, const char *expected)
{
    struct buf b = {0};
    struct json j = {.out = &b};
    json_double(&j, value);
    char *end;
    double found = strtod(buf_text(&b), &end);
    bool is_right = found == value && *end == '\0' && b.length <= 24;
    if (expected) is_right = is_right && strcmp(b.data, expected) == 0;
    if (!is_right) print_error("%.17g was written as %s\n", value, buf_text(&b));
    buf_deinit(&b);
    assert_true(is_right);
}

/* clang-format off */
static void doubles_read_back_and_have_no_needless_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } known[] = {
        {0, "0"}, {-0.0, "-0"}, {1, "1"}, {0.1, "0.1"}, {-2.5, "-2.5"}, {1e22, "1e+22"},
        {1e-7, "1e-07"}, {123456789, "123456789"}, {0.30000000000000004, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"}, {1.7976931348623157e308, "1.7976931348623157e+308"},
    };
    struct rng rng = {.state = SEED};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        check_double(known[i].value, known[i].text);
    check_double(5e-324, NULL);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = rng_next(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) check_double(value, NULL);
    }
}
/* clang-format on */

#ifdef CARAT_HAVE_JSON
/* Written as one array of strings, parsed by another implementation, compared byte by byte. */
static void every_code_point_survives_json(void **state)
{
    (void)state;
    struct buf b = {0};
    struct json j = {.out = &b};
    char bytes[4];
    json_begin_array(&j);
    for (uint32_t c = 0; c < CODE_POINTS; c++)
        if (is_scalar(c)) json_text(&j, bytes, (size_t)utf8_write(c, bytes));
    json_end_array(&j);
    assert_false(b.failed);
    json_error_t problem;
    json_t *list = json_loadb(b.data, b.length, JSON_ALLOW_NUL, &problem);
    if (!list) fail_msg("%s at %d", problem.text, problem.position);
    size_t i = 0;
    for (uint32_t c = 0; c < CODE_POINTS; c++) {
        if (!is_scalar(c)) continue;
        const json_t *one = json_array_get(list, i++);
        int n = utf8_write(c, bytes);
        if (json_string_length(one) != (size_t)n ||
            memcmp(json_string_value(one), bytes, (size_t)n))
            fail_msg("U+%04X differs", c);
    }
    assert_int_equal(json_array_size(list), i);
    json_decref(list);
    buf_deinit(&b);
}
#else
static void every_code_point_survives_json(void **state)
{
    (void)state;
    print_message("built without jansson: skipped\n");
    skip();
}
#endif

/* ---- rng -------------------------------------------------------------------------------- */

static void the_generator_is_splitmix64(void **state)
{
    (void)state;
    /* The published sequence for seed 1234567. */
    static const uint64_t known[] = {6457827717110365317u, 3203168211198807973u,
                                     9817491932198370423u, 4593380528125082431u,
                                     16408922859458223821u};
    struct rng rng = {.state = 1234567};
    for (int i = 0; i < 5; i++) assert_true(rng_next(&rng) == known[i]);
}

static void draws_are_in_range_and_even(void **state)
{
    (void)state;
    struct rng rng = {.state = SEED};
    enum { N = 200000 };
    double sum = 0, squares = 0, units = 0;
    int counts[7] = {0};
    for (int i = 0; i < N; i++) {
        double unit = rng_unit(&rng), normal = (double)rng_normal(&rng);
        assert_true(unit >= 0 && unit < 1 && isfinite(normal));
        units += unit;
        sum += normal;
        squares += normal * normal;
        counts[rng_below(&rng, 7)]++;
    }
    assert_true(fabs(units / N - 0.5) < 0.005);
    assert_true(fabs(sum / N) < 0.01 && fabs(squares / N - 1) < 0.02);
    for (int i = 0; i < 7; i++) assert_in_range(counts[i], N / 7 - 1000, N / 7 + 1000);
    for (int i = 0; i < 100; i++) assert_int_equal(rng_below(&rng, 1), 0);
}

/* ---- os --------------------------------------------------------------------------------- */

static void check_not_mapped(const char *path, const char *part)
{
    struct os_map map;
    struct carat_error err = {0};
    long before = mem_blocks_live();
    assert_int_equal(os_map_open(&map, path, &err), CARAT_EFORMAT);
    assert_int_equal(err.code, CARAT_EFORMAT);
    if (!strstr(err.message, part) || !strstr(err.message, path))
        fail_msg("%s: \"%s\" expected in \"%s\"", path, part, err.message);
    assert_null(map.data);
    os_map_close(&map);
    assert_int_equal(os_map_open(&map, path, NULL), CARAT_EFORMAT);
    assert_int_equal(mem_blocks_live(), before);
}

static void only_regular_files_with_bytes_are_mapped(void **state)
{
    (void)state;
    struct scratch s;
    char path[512];
    scratch_open(&s);
    check_not_mapped(s.path, "directory");
    check_not_mapped("/dev/zero", "regular file");
    check_not_mapped(scratch_file(&s, "missing", path), "No such file");
    check_not_mapped("", "cannot be opened");
    scratch_write(&s, "empty", "", 0);
    check_not_mapped(scratch_file(&s, "empty", path), "the file is empty");
    scratch_file(&s, "fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_not_mapped(path, "regular file"); /* and does not wait for a writer */
    scratch_write(&s, "locked", "x", 1);
    assert_int_equal(chmod(scratch_file(&s, "locked", path), 0), 0);
    if (geteuid() != 0) check_not_mapped(path, "Permission denied");
    scratch_close(&s);
}

static void an_address_leads_to_its_file(void **state)
{
    (void)state;
    struct scratch s;
    struct os_map one, two;
    struct carat_error err = {0};
    char first[512], second[512];
    scratch_open(&s);
    scratch_write(&s, "one", "first", 5);
    scratch_write(&s, "two", "second file", 11);
    scratch_file(&s, "one", first);
    scratch_file(&s, "two", second);
    assert_int_equal(os_map_open(&one, first, &err), CARAT_OK);
    assert_int_equal(os_map_open(&two, second, &err), CARAT_OK);
    assert_int_equal(one.length, 5);
    assert_memory_equal(two.data, "second file", 11);
    assert_string_equal(os_map_path_at(one.data + 4), first);
    assert_string_equal(os_map_path_at(two.data), second);
    assert_null(os_map_path_at(one.data + 5));
    assert_null(os_map_path_at(&one));
    assert_null(os_map_path_at(NULL));
    const uint8_t *gone = one.data;
    os_map_close(&one);
    os_map_close(&one);
    assert_null(os_map_path_at(gone));
    assert_string_equal(os_map_path_at(two.data), second);
    os_map_close(&two);
    scratch_close(&s);
}

static void mapping_reports_being_out_of_memory(void **state)
{
    (void)state;
    struct scratch s;
    struct os_map map;
    struct carat_error err = {0};
    char path[512];
    scratch_open(&s);
    scratch_write(&s, "one", "first", 5);
    scratch_file(&s, "one", path);
    mem_fail_after(0);
    assert_int_equal(os_map_open(&map, path, &err), CARAT_EMEMORY);
    mem_fail_after(-1);
    assert_null(map.data);
    scratch_close(&s);
}

static void the_machine_has_cores_memory_and_a_clock(void **state)
{
    (void)state;
    char name[64], features[256], tiny[4];
    assert_true(os_memory_total() > 1u << 20);
    os_cpu_name(name, sizeof name);
    assert_true(name[0] != '\0');
    os_cpu_features(features, sizeof features);
    assert_null(strstr(features, "  "));
    os_cpu_name(tiny, sizeof tiny);
    assert_true(strlen(tiny) <= 3);
    os_cpu_features(tiny, sizeof tiny);
    assert_true(strlen(tiny) <= 3);
    double first = os_seconds(), second = os_seconds();
    assert_true(second >= first && first > 0);
}

/* ---- keys and pointers ------------------------------------------------------------------ */

static int order_of(const char *a, const char *b)
{
    return utf8_compare_lower(a, strlen(a), b, strlen(b));
}

static void case_is_no_matter_when_texts_are_sorted(void **state)
{
    (void)state;
    assert_int_equal(order_of("Key", "kEY"), 0);
    assert_true(order_of("B", "a") > 0);
    assert_true(order_of("key", "Keys") < 0);
    assert_true(order_of("", "a") < 0);
    assert_int_equal(order_of("\xc3\x84\xc5\xbd", "\xc3\xa4\xc5\xbe"), 0); /* A umlaut, Z caron */
    assert_int_equal(order_of("\xce\x86\xd0\x81", "\xce\xac\xd1\x91"), 0); /* Alpha tonos, Yo */
    assert_true(order_of("\xff", "\xf0\x90\x80\x80") > 0);                 /* no UTF-8: last */
}

/* The text of the only step, or "-". */
static const char *step_of(const char *pointer, char out[POINTER_STEP_BYTES])
{
    const char *at = pointer, *end = pointer + strlen(pointer);
    return pointer_step(&at, end, out) < 0 || at != end ? "-" : out;
}

static void steps_of_pointers_lose_their_escapes(void **state)
{
    (void)state;
    char step[POINTER_STEP_BYTES], longest[POINTER_STEP_BYTES + 2];
    assert_string_equal(step_of("/a b", step), "a b");
    assert_string_equal(step_of("/", step), "");
    assert_string_equal(step_of("/a%20%C3%a4", step), "a \xc3\xa4");
    assert_string_equal(step_of("/~0~1~01%7E1", step), "~/~1/");
    const char *const wrong[] = {"",     "a",    "/~",   "/~2",  "/a~",    "/%",       "/%4",
                                 "/%-1", "/%+1", "/% 1", "/%4g", "/a%00b", "/~%30~%32"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_string_equal(step_of(wrong[i], step), "-");
    /* The escape of a slash is undone before the pointer is divided. */
    const char *two = "/a%2Fb", *end = two + strlen(two);
    assert_int_equal(pointer_step(&two, end, step), 1);
    assert_string_equal(step_of(two, step), "b");
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[POINTER_STEP_BYTES] = '\0';
    assert_string_equal(step_of(longest, step), longest + 1);
    longest[POINTER_STEP_BYTES] = 'x';
    longest[POINTER_STEP_BYTES + 1] = '\0';
    assert_string_equal(step_of(longest, step), "-");
    assert_int_equal(pointer_index("0"), 0);
    assert_int_equal(pointer_index("120"), 120);
    const char *const none[] = {"", "+0", "-0", " 1", "01", "1x", "12345678901", "-"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_true(pointer_index(none[i]) == SIZE_MAX);
}

/* ---- status ----------------------------------------------------------------------------- */

static void errors_carry_code_place_and_hint(void **state)
{
    (void)state;
    struct carat_error err = {0};
    assert_int_equal(err_set(NULL, CARAT_EIO, "%d", 1), CARAT_EIO);
    err_hint(NULL, "none");
    assert_int_equal(err_set(&err, CARAT_EUSAGE, "n: %d found", 5), CARAT_EUSAGE);
    err_hint(&err, "take %d", 4);
    assert_int_equal(err_within(&err, "file %s", "a"), CARAT_EUSAGE);
    assert_string_equal(err.message, "file a: n: 5 found");
    assert_string_equal(err.hint, "take 4");
    err_set(&err, CARAT_EIO, "new");
    assert_string_equal(err.hint, ""); /* an old hint does not survive */
    char longest[2000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    err_set(&err, CARAT_EIO, "%s", longest);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(err_within(&err, "%s", longest), CARAT_EIO);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(err_no_memory(&err, "rows", 77), CARAT_EMEMORY);
    assert_non_null(strstr(err.message, "77 bytes"));
}

static void every_status_has_a_text_and_an_exit_status(void **state)
{
    (void)state;
#define X(name, value, exit_status, text)                                                          \
    assert_int_equal(carat_exit_status(CARAT_##name), exit_status);                                \
    assert_string_equal(carat_status_text(CARAT_##name), text);                                    \
    assert_true((value) == 0 ? (exit_status) == 0 : (value) < 0 && (exit_status) > 0);
    CARAT_STATUS_LIST(X)
#undef X
    assert_int_equal(carat_exit_status((enum carat_status)12345), 1);
    assert_non_null(carat_status_text((enum carat_status)12345));
}

static void times_without_a_date_have_a_text(void **state)
{
    (void)state;
    char utc[CALENDAR_TEXT], day[CALENDAR_TEXT];
    calendar_utc(1795840748, utc);
    assert_string_equal(utc, "2026-11-28T04:39:08Z");
    calendar_utc(-1, utc);
    assert_string_equal(utc, "1969-12-31T23:59:59Z");
    calendar_day(86400 * 365, day);
    assert_int_equal(strlen(day), strlen("1971-01-01")); /* or the day before, by the time zone */
    const int64_t none[] = {INT64_MIN, INT64_MAX, 253402300800 + 86400, 67768036191676799};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        calendar_utc(none[i], utc);
        calendar_day(none[i], day);
        assert_string_equal(utc, "1970-01-01T00:00:00Z");
        assert_string_equal(day, "-");
    }
    calendar_utc(253402300799, utc);
    assert_string_equal(utc, "9999-12-31T23:59:59Z");
}

#define TEST(name) cmocka_unit_test_teardown(name, check_blocks)

int main(void)
{
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        TEST(hash_is_siphash_1_3),
        TEST(texts_collide_under_one_key_only),
        TEST(memory_is_zeroed_and_counted),
        TEST(sizes_that_overflow_give_nothing),
        TEST(allocations_fail_on_purpose),
        TEST(arena_memory_is_aligned_zeroed_and_disjoint),
        TEST(a_large_take_does_not_waste_the_newest_block),
        TEST(an_arena_out_of_memory_gives_nothing_and_stays_valid),
        TEST(taking_from_a_sealed_arena_is_an_assertion),
        TEST(a_buffer_grows_and_keeps_its_end),
        TEST(a_failed_growth_is_remembered_and_drops_what_follows),
        TEST(every_code_point_is_written_and_read),
        TEST(every_invalid_sequence_is_refused),
        TEST(what_can_still_become_valid_is_held_back),
        TEST(json_has_its_commas_and_escapes),
        TEST(json_escapes_what_a_terminal_obeys),
        TEST(doubles_read_back_and_have_no_needless_digits),
        TEST(every_code_point_survives_json),
        TEST(the_generator_is_splitmix64),
        TEST(draws_are_in_range_and_even),
        TEST(only_regular_files_with_bytes_are_mapped),
        TEST(an_address_leads_to_its_file),
        TEST(mapping_reports_being_out_of_memory),
        TEST(the_machine_has_cores_memory_and_a_clock),
        TEST(case_is_no_matter_when_texts_are_sorted),
        TEST(steps_of_pointers_lose_their_escapes),
        TEST(times_without_a_date_have_a_text),
        TEST(errors_carry_code_place_and_hint),
        TEST(every_status_has_a_text_and_an_exit_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
