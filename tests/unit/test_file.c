/* Files by their names: reading them up to a bound, and whether they still have their names. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/scratch.h"

enum { BOUND = 100000 }; /* more than one block */

static struct scratch folder;

static int open_folder(void **state)
{
    (void)state;
    scratch_open(&folder);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    mem_fail_after(-1);
    scratch_close(&folder);
    return mem_blocks_live() == 0 ? 0 : -1;
}

/* Writes a file of n bytes and reads it with the bound. */
static enum file_reading read_of(size_t n, struct buf *out)
{
    static char bytes[BOUND + 1];
    char path[512];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)('a' + i % 23);
    scratch_write(&folder, "file", bytes, n);
    enum file_reading reading =
        file_read_bounded(scratch_file(&folder, "file", path), 0, BOUND, out);
    if (reading == FILE_WHOLE && n > 0) assert_memory_equal(out->data + out->length - n, bytes, n);
    return reading;
}

static void files_are_read_up_to_the_bound(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_int_equal(read_of(0, &out), FILE_WHOLE);
    assert_int_equal(out.length, 0);
    assert_int_equal(read_of(3, &out), FILE_WHOLE);
    assert_int_equal(read_of(2, &out), FILE_WHOLE); /* appended */
    assert_string_equal(buf_text(&out), "abcab");
    buf_clear(&out);
    assert_int_equal(read_of(BOUND, &out), FILE_WHOLE);
    assert_int_equal(out.length, BOUND);
    buf_clear(&out);
    assert_int_equal(read_of(BOUND + 1, &out), FILE_LONGER);
    assert_true(out.length > BOUND);
    assert_int_equal(read_of(1, &out), FILE_LONGER); /* what was there before counts */
    buf_deinit(&out);
}

static void what_cannot_be_read_is_told_apart(void **state)
{
    (void)state;
    struct buf out = {0};
    char path[512];
    scratch_file(&folder, "none", path);
    assert_int_equal(file_read_bounded(path, 0, BOUND, &out), FILE_UNOPENED);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(file_read_bounded(folder.path, 0, BOUND, &out), FILE_BROKEN);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes, and nobody is waited for */
    assert_int_equal(file_read_bounded(path, O_NONBLOCK, BOUND, &out), FILE_WHOLE);
    assert_int_equal(out.length, 0);
    mem_fail_after(0);
    assert_int_equal(read_of(3, &out), FILE_NO_MEMORY);
    buf_deinit(&out);
}

static void an_open_file_is_read_from_where_it_is(void **state)
{
    (void)state;
    struct buf out = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "one two", 7), 7);
    close(ends[1]);
    char first[4];
    assert_int_equal(read(ends[0], first, sizeof first), 4);
    assert_int_equal(file_read_open(ends[0], BOUND, &out), FILE_WHOLE);
    assert_string_equal(buf_text(&out), "two");
    close(ends[0]);
    buf_deinit(&out);
}

static void a_file_has_its_name_until_another_one_gets_it(void **state)
{
    (void)state;
    char file[512], link[512];
    scratch_write(&folder, "file", "text", 4);
    int fd = open(scratch_file(&folder, "file", file), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(file_has_name(fd, file, 0));
    assert_true(file_has_name(fd, file, AT_SYMLINK_NOFOLLOW));
    assert_int_equal(symlink(file, scratch_file(&folder, "link", link)), 0);
    assert_true(file_has_name(fd, link, 0));
    assert_false(file_has_name(fd, link, AT_SYMLINK_NOFOLLOW));
    assert_int_equal(unlink(file), 0);
    assert_false(file_has_name(fd, file, 0));
    scratch_write(&folder, "file", "text", 4);
    assert_false(file_has_name(fd, file, 0));
    assert_false(file_has_name(-1, file, 0));
    file_sync_folder(file); /* whatever becomes of it, nothing fails */
    file_sync_folder("none");
    file_sync_folder("/none/none");
    close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_folder, close_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_are_read_up_to_the_bound),
        TEST(what_cannot_be_read_is_told_apart),
        TEST(an_open_file_is_read_from_where_it_is),
        TEST(a_file_has_its_name_until_another_one_gets_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
