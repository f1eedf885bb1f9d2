#include "api/ask_path.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES_MAX = 320 };

struct path {
    char text[PATH_BYTES_MAX];
    size_t length;
};

static void add(struct path *path, const char *text, size_t length)
{
    size_t room = sizeof path->text - 1 - path->length;
    if (length > room) length = room;
    memcpy(path->text + path->length, text, length);
    path->text[path->length += length] = '\0';
}

/* Bytes of a path that ": " follows; 0: the text does not begin with one. */
static size_t names_at(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("_.[]$-", text[n]))) n++;
    return text[n] == ':' && text[n + 1] == ' ' ? n : 0;
}

static void add_names(struct path *path, const char *text, size_t length)
{
    if (path->length && length && *text != '.' && *text != '[') add(path, ".", 1);
    add(path, text, length);
}

/* One step of a JSON pointer, "a~1b" or the number of an item. */
static void add_step(struct path *path, const char *text, size_t length)
{
    bool is_number = length > 0 && strspn(text, "0123456789") >= length;
    if (is_number)
        add(path, "[", 1);
    else if (path->length && *text != '.') /* "..." stands for steps that are not shown */
        add(path, ".", 1);
    for (size_t i = 0; i < length; i++) {
        bool is_escape = text[i] == '~' && i + 1 < length;
        add(path, is_escape ? (text[i + 1] == '1' ? "/" : "~") : text + i, 1);
        i += is_escape;
    }
    if (is_number) add(path, "]", 1);
}

static void add_pointer(struct path *path, const char *text, size_t length)
{
    for (size_t i = 1; i < length;) { /* after # */
        size_t end = ++i;
        while (end < length && text[end] != '/') end++;
        add_step(path, text + i, end - i);
        i = end;
    }
}

void ask_path_join(struct carat_error *err)
{
    static const char schema[] = "json schema: ";
    struct path path = {.length = 0};
    char rest[sizeof err->message];
    const char *at = err->message;
    for (size_t n;; at += n + 2) {
        if (strncmp(at, schema, sizeof schema - 1) == 0) at += sizeof schema - 1;
        const char *colon = strstr(at, ": ");
        bool is_pointer = *at == '#' && colon;
        n = is_pointer ? (size_t)(colon - at) : names_at(at);
        if (n == 0) break;
        (is_pointer ? add_pointer : add_names)(&path, at, n);
    }
    if (path.length == 0) return;
    snprintf(rest, sizeof rest, "%s", at);
    snprintf(err->message, sizeof err->message, "%s: %.*s", path.text,
             (int)(sizeof err->message - sizeof path.text - 2), rest);
}

void ask_path_dots(struct carat_error *err)
{
    size_t length = names_at(err->message), to = 0;
    for (size_t from = 0; from < length; from++) {
        char c = err->message[from];
        if (c == ']') continue;
        err->message[to++] = c == '[' ? '.' : c;
    }
    memmove(err->message + to, err->message + length, strlen(err->message + length) + 1);
}
