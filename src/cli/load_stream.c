#include "cli/load_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line, which a NUL ends: numbers are read with strtod. */
struct text {
    const char *data;
    size_t n;
};

/* What follows "name": and blanks; NULL: there is no such member. */
static const char *member(struct text t, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = t.data; (at = memmem(at, t.n - (size_t)(at - t.data), name, length));
         at += length) {
        bool is_name = at > t.data && at[-1] == '"' && at[length] == '"';
        const char *value = at + length + 1;
        while (is_name && *value == ' ') value++;
        if (!is_name || *value != ':') continue;
        for (value++; *value == ' ';) value++;
        return value;
    }
    return NULL;
}

static double number(struct text t, const char *name, double otherwise)
{
    const char *value = member(t, name);
    return value && ((*value >= '0' && *value <= '9') || *value == '-') ? strtod(value, NULL)
                                                                        : otherwise;
}

static int32_t whole(struct text t, const char *name)
{
    double value = number(t, name, 0);
    return value > 0 && value < INT32_MAX ? (int32_t)value : 0;
}

void load_stream_message(const char *body, size_t n, char out[LOAD_ERROR_MAX])
{
    const char *value = n ? member((struct text){body, n}, "message") : NULL;
    const char *from = value && *value == '"' ? value + 1 : body;
    size_t length = 0, most = n - (size_t)(from - body);
    while (length < most && length < LOAD_ERROR_MAX - 1 && (unsigned char)from[length] >= 0x20 &&
           !(value && from[length] == '"' && from[length - 1] != '\\'))
        length++;
    memcpy(out, from, length);
    out[length] = '\0';
}

/* ---- Events ----------------------------------------------------------------------------- */

struct listener {
    void (*tell)(void *user, const struct load_event *event);
    void *user;
};

static void tell_tokens(struct text t, const struct listener *l)
{
    struct load_event event = {.kind = CARAT_EVENT_TOKEN, .id = -1};
    const char *ids = member(t, "token_ids"), *text = member(t, "text");
    if (!ids || *ids != '[') {
        if (text && text[0] == '"' && text[1] != '"') l->tell(l->user, &event);
        return;
    }
    for (char *end; *ids == '[' || *ids == ','; ids = end) {
        long id = strtol(ids + 1, &end, 10);
        if (end == ids + 1) return;
        event.id = (int32_t)id;
        l->tell(l->user, &event);
        while (*end == ' ') end++;
    }
}

static void read_event(struct load_stream *s, struct text t, const struct listener *l)
{
    if (strcmp(t.data, "[DONE]") == 0) {
        s->is_done = true;
        return;
    }
    if (strncmp(t.data, "{\"error\"", 8) == 0) {
        load_stream_message(t.data, t.n, s->error);
        if (!s->error[0]) snprintf(s->error, sizeof s->error, "an error without a message");
        return;
    }
    if (member(t, "processed")) {
        const struct load_event event = {.kind = CARAT_EVENT_PROGRESS,
                                         .done = whole(t, "processed"),
                                         .total = whole(t, "total")};
        l->tell(l->user, &event);
        return;
    }
    tell_tokens(t, l);
    const char *reason = member(t, "finish_reason");
    if (reason && *reason == '"') s->is_finished = true;
    s->queue_seconds = number(t, "queue_ms", s->queue_seconds * 1e3) / 1e3;
    if (member(t, "cached_tokens")) s->n_cached = whole(t, "cached_tokens");
}

static void read_line(struct load_stream *s, const struct listener *l)
{
    static const char prefix[] = "data:";
    const char *line = buf_text(&s->line);
    size_t n = s->line.length, skip = sizeof prefix - 1;
    if (n > 0 && line[n - 1] == '\r') s->line.data[--n] = '\0';
    if (n >= skip && memcmp(line, prefix, skip) == 0) {
        while (line[skip] == ' ') skip++;
        read_event(s, (struct text){line + skip, n - skip}, l);
    }
    buf_clear(&s->line);
}

void load_stream_read(struct load_stream *s, const char *bytes, size_t n,
                      void (*tell)(void *user, const struct load_event *event), void *user)
{
    const struct listener l = {tell, user};
    for (const char *end; n > 0; n -= (size_t)(end - bytes), bytes = end) {
        const char *newline = memchr(bytes, '\n', n);
        end = newline ? newline + 1 : bytes + n;
        buf_add(&s->line, bytes, (size_t)((newline ? newline : end) - bytes));
        if (newline) read_line(s, &l);
    }
}

void load_stream_deinit(struct load_stream *s)
{
    buf_deinit(&s->line);
}
