/* The server's log: whatever bytes a client sends, every event is one line, JSON lines parse, and
 * text lines have no control characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "server/log.h"

#ifdef CARAT_HAVE_JSON
#include <jansson.h>
#endif

enum { SEED = 20261122, EVENTS = 2000 };

/* Standard error is a file while events are logged; what came is in `text`. */
struct capture {
    FILE *file;
    int kept;
    struct buf text;
};

static void capture_begin(struct capture *c)
{
    *c = (struct capture){.file = tmpfile(), .kept = dup(STDERR_FILENO)};
    assert_non_null(c->file);
    dup2(fileno(c->file), STDERR_FILENO);
}

static void capture_end(struct capture *c)
{
    dup2(c->kept, STDERR_FILENO);
    close(c->kept);
    rewind(c->file);
    char bytes[4096];
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, c->file)) > 0;) buf_add(&c->text, bytes, n);
    fclose(c->file);
}

static size_t count_lines(const struct buf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->length; i++) n += text->data[i] == '\n';
    return n;
}

/* Events whose texts are random bytes: some ASCII alone, some anything. */
static void log_random(enum log_format format)
{
    static const char marks[] = "\n\r\x1b[2J\"\\{}:,= \xC2\x9B\xE2\x80\xAE";
    struct rng rng = {SEED};
    print_message("seed %d\n", SEED);
    log_open(format, LOG_DEBUG);
    for (int i = 0; i < EVENTS; i++) {
        char first[64], second[64];
        int limit = i % 2 ? 255 : 127;
        for (size_t k = 0; k < sizeof first; k++) {
            first[k] = (char)(1 + rng_next(&rng) % (uint64_t)limit);
            second[k] = marks[rng_next(&rng) % (sizeof marks - 1)];
        }
        first[rng_next(&rng) % sizeof first] = second[rng_next(&rng) % sizeof second] = '\0';
        first[sizeof first - 1] = second[sizeof second - 1] = '\0';
        const struct log_field fields[] = {LOG_TEXT_FIELD("first", first), LOG_NUMBER("n", i / 3.0),
                                           LOG_TEXT_FIELD("second", second)};
        log_event((enum log_level)(i % 4), "request", fields, 3);
    }
}

static void json_lines_parse_whatever_clients_send(void **state)
{
    (void)state;
#ifndef CARAT_HAVE_JSON
    print_message("skipped: built without jansson\n");
    skip();
#else
    struct capture c;
    capture_begin(&c);
    log_random(LOG_JSON);
    capture_end(&c);
    assert_int_equal(count_lines(&c.text), EVENTS);
    for (char *at = c.text.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        json_error_t error;
        json_t *line = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, &error);
        if (!line) fail_msg("%s: %.*s", error.text, (int)(end - at), at);
        assert_true(json_is_string(json_object_get(line, "time")));
        assert_string_equal(json_string_value(json_object_get(line, "event")), "request");
        assert_true(json_is_number(json_object_get(line, "n")));
        json_decref(line);
    }
    buf_deinit(&c.text);
#endif
}

static void text_lines_have_no_control_characters(void **state)
{
    (void)state;
    struct capture c;
    capture_begin(&c);
    log_random(LOG_TEXT);
    capture_end(&c);
    assert_int_equal(count_lines(&c.text), EVENTS);
    assert_int_equal(utf8_valid_prefix(c.text.data, c.text.length), c.text.length);
    for (size_t i = 0; i < c.text.length;) {
        uint32_t code_point;
        i += (size_t)utf8_read(c.text.data + i, c.text.length - i, &code_point);
        assert_true(code_point == '\n' || code_point >= ' ');
        assert_false(code_point >= 0x7F && code_point < 0xA0);
        assert_false(code_point >= 0x202A && code_point <= 0x202E);
    }
    buf_deinit(&c.text);
}

static void a_value_cannot_forge_another_field(void **state)
{
    (void)state;
    struct capture c;
    capture_begin(&c);
    log_open(LOG_TEXT, LOG_INFO);
    const struct log_field fields[] = {
        LOG_TEXT_FIELD("route", "/v1/models"), LOG_TEXT_FIELD("agent", "x status=200"),
        LOG_TEXT_FIELD("empty", ""), LOG_NUMBER("ms", 100 / 3.0), LOG_NUMBER("bytes", 1e7)};
    log_event(LOG_INFO, "request", fields, 5);
    capture_end(&c);
    assert_non_null(strstr(c.text.data,
                           " info request route=/v1/models"
                           " agent=\"x status=200\" empty=\"\" ms=33.3333 bytes=10000000\n"));
    buf_deinit(&c.text);
}

static void levels_below_the_least_are_left_out(void **state)
{
    (void)state;
    struct capture c;
    capture_begin(&c);
    log_open(LOG_TEXT, LOG_WARN);
    for (int level = LOG_DEBUG; level <= LOG_ERROR; level++)
        log_event((enum log_level)level, "event", NULL, 0);
    capture_end(&c);
    assert_int_equal(count_lines(&c.text), 2);
    assert_null(strstr(c.text.data, "info"));
    assert_non_null(strstr(c.text.data, "Z warning event\n"));
    assert_non_null(strstr(c.text.data, "Z error event\n"));
    buf_deinit(&c.text);
}

static void long_values_are_cut(void **state)
{
    (void)state;
    static char text[1 << 20];
    memset(text, 'x', sizeof text - 1);
    struct capture c;
    capture_begin(&c);
    log_open(LOG_TEXT, LOG_INFO);
    log_event(LOG_INFO, "event", (struct log_field[]){LOG_TEXT_FIELD("text", text)}, 1);
    capture_end(&c);
    assert_in_range(c.text.length, LOG_VALUE_MAX, LOG_VALUE_MAX + 100);
    buf_deinit(&c.text);
}

static void a_journal_gets_priorities_and_another_file_does_not(void **state)
{
    (void)state;
    struct capture c;
    capture_begin(&c);
    struct stat facts;
    char stream[64];
    assert_int_equal(fstat(STDERR_FILENO, &facts), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)facts.st_dev,
             (unsigned long long)facts.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(LOG_TEXT, LOG_DEBUG);
    for (int level = LOG_DEBUG; level <= LOG_ERROR; level++)
        log_event((enum log_level)level, "event", NULL, 0);
    setenv("JOURNAL_STREAM", "1:2", 1);
    log_open(LOG_TEXT, LOG_DEBUG);
    log_event(LOG_INFO, "event", NULL, 0);
    unsetenv("JOURNAL_STREAM");
    capture_end(&c);
    const char *first = "<7>event\n<6>event\n<4>event\n<3>event\n2";
    assert_int_equal(strncmp(c.text.data, first, strlen(first)), 0);
    buf_deinit(&c.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_lines_parse_whatever_clients_send),
        cmocka_unit_test(text_lines_have_no_control_characters),
        cmocka_unit_test(a_value_cannot_forge_another_field),
        cmocka_unit_test(levels_below_the_least_are_left_out),
        cmocka_unit_test(long_values_are_cut),
        cmocka_unit_test(a_journal_gets_priorities_and_another_file_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
