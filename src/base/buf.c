#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Room for n more bytes and the closing NUL. */
static bool reserve(struct buf *b, size_t n)
{
    if (b->failed) return false;
    size_t needed;
    if (__builtin_add_overflow(b->length, n, &needed) || needed > SIZE_MAX / 4) {
        b->failed = true;
        return false;
    }
    if (needed + 1 <= b->capacity) return true;
    size_t capacity = b->capacity ? b->capacity : 64;
    while (capacity < needed + 1) capacity *= 2;
    char *data = mem_resize(b->data, capacity, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->data + b->length, bytes, n);
    b->length += n;
    b->data[b->length] = '\0';
}

void buf_add_text(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_add_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *form, ...)
{
    va_list arguments, again;
    va_start(arguments, form);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, form, arguments);
    va_end(arguments);
    if (n < 0) {
        b->failed = true;
    } else if (reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->length, (size_t)n + 1, form, again);
        b->length += (size_t)n;
    }
    va_end(again);
}

void buf_clear(struct buf *b)
{
    b->length = 0;
    b->failed = false;
    if (b->data) b->data[0] = '\0';
}

void buf_deinit(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){0};
}

const char *buf_text(const struct buf *b)
{
    return b->data ? b->data : "";
}
