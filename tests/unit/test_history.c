/* The history file of chat: what was there survives whatever happens. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/rng.h"
#include "cli/history_file.h"
#include "support/scratch.h"

enum { SEED = 11 };

static struct scratch scratch;
static char path[512];

static int make_folder(void **state)
{
    (void)state;
    scratch_open(&scratch);
    scratch_file(&scratch, "history", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void write_file(const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_int_equal(write(fd, text, length), length);
    close(fd);
}

struct entries {
    struct buf all; /* each followed by '\n' */
    size_t n;
};

static void take(void *user, const char *text, size_t length)
{
    struct entries *e = user;
    buf_add(&e->all, text, length);
    buf_add_char(&e->all, '\n');
    e->n++;
}

static struct entries read_entries(void)
{
    struct entries e = {0};
    struct carat_error err = {0};
    int status = history_file_read(path, take, &e, &err);
    if (status != CARAT_OK) fail_msg("%s", err.message);
    return e;
}

static void expect_entries(const char *wanted)
{
    struct entries e = read_entries();
    assert_string_equal(buf_text(&e.all), wanted);
    buf_deinit(&e.all);
}

static void add(const char *text, size_t length)
{
    struct carat_error err = {0};
    if (history_file_add(path, text, length, &err) != CARAT_OK) fail_msg("%s", err.message);
}

/* ---- Form ------------------------------------------------------------------------------- */

static void any_bytes_come_back(void **state)
{
    (void)state;
    struct rng rng = {SEED};
    struct buf wanted = {0};
    for (int i = 0; i < 200; i++) {
        char text[300];
        size_t length = 1 + (size_t)(rng_next(&rng) % sizeof text);
        for (size_t k = 0; k < length; k++) text[k] = (char)rng_next(&rng);
        add(text, length);
        buf_add(&wanted, text, length);
        buf_add_char(&wanted, '\n');
    }
    struct entries e = read_entries();
    assert_int_equal(e.n, 200);
    assert_int_equal(e.all.length, wanted.length);
    assert_memory_equal(e.all.data, wanted.data, wanted.length);
    buf_deinit(&e.all);
    buf_deinit(&wanted);
}

/* As libedit 3.1 saves it in a UTF-8 language and in the C one. */
static void what_libedit_wrote_is_read(void **state)
{
    (void)state;
    static const char text[] = "_HiStOrY_V2_\n"
                               "hello\\040world\n"
                               "one\\012two\\011three\n"
                               "caf\xC3\xA9\\040\xF0\x9F\x98\x80\n"
                               "caf\\M-C\\M-)\n"
                               "back\\134slash\\040\\134n\n"
                               "esc\\040\\^[[1m\\040\\^?\\040\\^A\n"
                               "\\M^@\\M^?";
    write_file(text, sizeof text - 1);
    expect_entries("hello world\none\ntwo\tthree\ncaf\xC3\xA9 \xF0\x9F\x98\x80\ncaf\xC3\xA9\n"
                   "back\\slash \\n\nesc \x1B[1m \x7F \x01\n\x80\xFF\n");
}

static void odd_files_are_read(void **state)
{
    (void)state;
    expect_entries("");
    write_file("", 0);
    expect_entries("");
    static const char odd[] = "no first line\n\n_HiStOrY_V2_\na\\q\\\n\\400\\8\\M\\^";
    write_file(odd, sizeof odd - 1);
    expect_entries("no first line\na\\q\\\n\\400\\8\\M\\^\n");
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    add("not kept", 8);
    expect_entries("");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    struct carat_error err = {0};
    assert_int_equal(history_file_add(path, "x", 1, &err), CARAT_EIO);
    assert_int_equal(history_file_read(path, take, NULL, &err), CARAT_EIO);
}

/* ---- Writing ---------------------------------------------------------------------------- */

static void the_file_is_its_owners_alone(void **state)
{
    (void)state;
    struct stat facts;
    add("new", 3);
    stat(path, &facts);
    assert_int_equal(facts.st_mode & 0777, 0600);
    write_file("old\n", 4);
    chmod(path, 0644);
    add("new", 3);
    stat(path, &facts);
    assert_int_equal(facts.st_mode & 0777, 0600);
    expect_entries("old\nnew\n");
}

static void a_line_that_was_cut_does_not_take_the_next_one_along(void **state)
{
    (void)state;
    write_file("_HiStOrY_V2_\nwhole\ncu", 21);
    add("next", 4);
    expect_entries("whole\ncu\nnext\n");
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    add("first", 5);
    pid_t child = fork();
    if (child == 0) {
        struct carat_error err = {0};
        struct stat facts;
        stat(path, &facts);
        signal(SIGXFSZ, SIG_IGN);
        /* Four bytes of the line fit. */
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)facts.st_size + 4, RLIM_INFINITY});
        _exit(history_file_add(path, "second", 6, &err) == CARAT_EIO ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    expect_entries("first\n");
    add("third", 5);
    expect_entries("first\nthird\n");
}

static void programs_side_by_side_keep_every_line(void **state)
{
    (void)state;
    enum { PROGRAMS = 6, LINES = 40, OLDER = 300 };
    for (int i = 0; i < OLDER; i++) add("older", 5);
    for (int p = 0; p < PROGRAMS; p++) {
        if (fork() != 0) continue;
        int failures = 0;
        for (int i = 0; i < LINES; i++) {
            char text[200];
            struct carat_error err = {0};
            int n = snprintf(text, sizeof text, "program %d line %d %0*d", p, i, 40 + i, 7);
            failures += history_file_add(path, text, (size_t)n, &err) != CARAT_OK;
            /* The older ones go while others write: 300 + 240 are more than twice 240. */
            if (i % 3 == p % 3)
                failures += history_file_trim(path, PROGRAMS * LINES, &err) != CARAT_OK;
        }
        _exit(failures);
    }
    for (int p = 0; p < PROGRAMS; p++) {
        int status;
        wait(&status);
        assert_int_equal(status, 0);
    }
    struct entries e = read_entries();
    assert_true(e.n < OLDER + PROGRAMS * LINES); /* it was written again */
    for (int p = 0; p < PROGRAMS; p++) {
        for (int i = 0; i < LINES; i++) {
            char text[200];
            snprintf(text, sizeof text, "program %d line %d %0*d\n", p, i, 40 + i, 7);
            assert_non_null(strstr(buf_text(&e.all), text));
        }
    }
    buf_deinit(&e.all);
}

/* ---- Trimming --------------------------------------------------------------------------- */

static void trimming_keeps_the_newest(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct stat facts;
    char target[512], text[16];
    scratch_file(&scratch, "target", target);
    assert_int_equal(symlink(target, path), 0);
    for (int i = 0; i < 20; i++) add(text, (size_t)snprintf(text, sizeof text, "line %d", i));
    assert_int_equal(history_file_trim(path, 10, &err), CARAT_OK);
    struct entries e = read_entries();
    assert_int_equal(e.n, 20); /* not yet twice as many */
    buf_deinit(&e.all);
    add("line 20", 7);
    assert_int_equal(history_file_trim(path, 3, &err), CARAT_OK);
    expect_entries("line 18\nline 19\nline 20\n");
    assert_int_equal(lstat(path, &facts), 0);
    assert_true(S_ISLNK(facts.st_mode));
    stat(path, &facts);
    assert_int_equal(facts.st_mode & 0777, 0600);
    unlink(target);
}

static int files_in_folder(void)
{
    int n = 0;
    DIR *d = opendir(scratch.path);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) n += entry->d_name[0] != '.';
    closedir(d);
    return n;
}

static void a_trim_that_fails_leaves_the_file(void **state)
{
    (void)state;
    char text[16];
    for (int i = 0; i < 9; i++) add(text, (size_t)snprintf(text, sizeof text, "line %d", i));
    pid_t child = fork();
    if (child == 0) {
        struct carat_error err = {0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){4, RLIM_INFINITY});
        _exit(history_file_trim(path, 2, &err) == CARAT_EIO ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    struct entries e = read_entries();
    assert_int_equal(e.n, 9);
    assert_int_equal(files_in_folder(), 1);
    buf_deinit(&e.all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_teardown(f, remove_file)
        CASE(any_bytes_come_back),
        CASE(what_libedit_wrote_is_read),
        CASE(odd_files_are_read),
        CASE(the_file_is_its_owners_alone),
        CASE(a_line_that_was_cut_does_not_take_the_next_one_along),
        CASE(a_full_disk_loses_nothing),
        CASE(programs_side_by_side_keep_every_line),
        CASE(trimming_keeps_the_newest),
        CASE(a_trim_that_fails_leaves_the_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
