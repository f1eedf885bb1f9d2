#include "server/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/json_writer.h"

/* How lines are written: set once by log_open, before threads start. A log that every function had
 * to be given would stand in every signature. */
static struct {
    enum log_format format;
    enum log_level least;
    bool is_journal;
} log_settings = {.least = LOG_INFO};

static const struct {
    const char *name;
    int priority; /* of syslog */
} levels[] = {
    [LOG_DEBUG] = {"debug", 7},
    [LOG_INFO] = {"info", 6},
    [LOG_WARN] = {"warning", 4},
    [LOG_ERROR] = {"error", 3},
};

/* $JOURNAL_STREAM is device:inode of the journal's socket. It may be inherited by a program whose
 * standard error goes elsewhere. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat facts;
    unsigned long long device, inode;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &facts) == 0 && facts.st_dev == device && facts.st_ino == inode;
}

void log_open(enum log_format format, enum log_level least)
{
    log_settings.format = format;
    log_settings.least = least;
    log_settings.is_journal = is_journal();
}

static void format_time(char *out, size_t size)
{
    struct timespec now = {0};
    char utc[CALENDAR_TEXT];
    clock_gettime(CLOCK_REALTIME, &now);
    calendar_utc(now.tv_sec, utc);
    snprintf(out, size, "%.*s.%03dZ", (int)strcspn(utc, "Z"), utc, (int)(now.tv_nsec / 1000000));
}

/* Readable without quotes, in a shell as in a table. */
static bool is_plain(const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789._-+/:,@%";
    return text[0] && !text[strspn(text, plain)];
}

/* Six digits are enough for what is measured; what is counted is whole. */
static void put_number(struct buf *out, double value)
{
    if (!isfinite(value))
        buf_add_text(out, "null");
    else
        buf_printf(out, value == floor(value) && fabs(value) < 1e15 ? "%.0f" : "%.6g", value);
}

static void put_value(struct buf *out, const struct log_field *field, bool may_be_plain)
{
    struct json j = {.out = out};
    if (!field->text) {
        put_number(out, field->number);
        return;
    }
    size_t length = strnlen(field->text, LOG_VALUE_MAX + 1);
    if (length > LOG_VALUE_MAX) {
        char cut[LOG_VALUE_MAX + 4];
        snprintf(cut, sizeof cut, "%.*s...", LOG_VALUE_MAX, field->text);
        json_put_string(&j, cut);
    } else if (may_be_plain && is_plain(field->text)) {
        buf_add(out, field->text, length);
    } else {
        json_text(&j, field->text, length);
    }
}

static void put_json(struct buf *out, enum log_level level, const char *event,
                     const struct log_field *fields, int n)
{
    char now[40];
    format_time(now, sizeof now);
    struct json j = {.out = out};
    json_begin_object(&j);
    json_key_string(&j, "time", now);
    json_key_string(&j, "level", levels[level].name);
    json_key_string(&j, "event", event);
    for (int i = 0; i < n; i++) {
        json_key(&j, fields[i].key);
        put_value(out, &fields[i], false);
        j.need_comma = true;
    }
    json_end_object(&j);
}

static void put_text(struct buf *out, enum log_level level, const char *event,
                     const struct log_field *fields, int n)
{
    char now[40];
    format_time(now, sizeof now);
    if (!log_settings.is_journal) buf_printf(out, "%s %s ", now, levels[level].name);
    buf_add_text(out, event);
    for (int i = 0; i < n; i++) {
        buf_printf(out, " %s=", fields[i].key);
        put_value(out, &fields[i], true);
    }
}

/* The whole line in one write, so that lines of several threads do not mix. */
static void write_line(const struct buf *line)
{
    for (size_t done = 0; done < line->length;) {
        ssize_t n = write(STDERR_FILENO, line->data + done, line->length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody can be told */
        done += (size_t)n;
    }
}

void log_event(enum log_level level, const char *event, const struct log_field *fields, int n)
{
    if (level < log_settings.least) return;
    struct buf line = {0};
    if (log_settings.is_journal) buf_printf(&line, "<%d>", levels[level].priority);
    if (log_settings.format == LOG_JSON)
        put_json(&line, level, event, fields, n);
    else
        put_text(&line, level, event, fields, n);
    buf_add_char(&line, '\n');
    if (!line.failed) write_line(&line);
    buf_deinit(&line);
}
