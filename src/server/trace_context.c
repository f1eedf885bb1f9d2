#include "server/trace_context.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/hex.h"

/* Lower-case digits alone; both ids may not be all zeros. */
static bool is_hex(const char *text, size_t n, bool may_be_zero)
{
    bool is_zero = true;
    for (size_t i = 0; i < n; i++) {
        const bool is_digit = text[i] >= '0' && text[i] <= '9';
        if (!is_digit && (text[i] < 'a' || text[i] > 'f')) return false;
        is_zero = is_zero && text[i] == '0';
    }
    return may_be_zero || !is_zero;
}

/* "00-TRACE-PARENT-FLAGS". Later versions may be followed by more, after another dash. */
static bool read_parent(struct trace_context *out, const char *text, bool *is_sampled)
{
    enum { TRACE = 3, PARENT = 36, FLAGS = 53, WHOLE = 55 };
    const size_t length = strlen(text);
    if (length < WHOLE || text[TRACE - 1] != '-' || text[PARENT - 1] != '-') return false;
    if (text[FLAGS - 1] != '-' || !is_hex(text, 2, true) || strncmp(text, "ff", 2) == 0)
        return false;
    if (length > WHOLE && (strncmp(text, "00", 2) == 0 || text[WHOLE] != '-')) return false;
    if (!is_hex(text + TRACE, TRACE_ID_SIZE - 1, false)) return false;
    if (!is_hex(text + PARENT, SPAN_ID_SIZE - 1, false) || !is_hex(text + FLAGS, 2, true))
        return false;
    memcpy(out->trace, text + TRACE, TRACE_ID_SIZE - 1);
    memcpy(out->parent, text + PARENT, SPAN_ID_SIZE - 1);
    *is_sampled = hex_value(text[FLAGS + 1]) & 1;
    return true;
}

static void make_id(char *out, size_t size)
{
    uint64_t number[2] = {0};
    if (getrandom(number, sizeof number, 0) != sizeof number) number[0] = (uintptr_t)out;
    number[0] |= 1; /* zeros alone are no id */
    for (size_t i = 0; i < (size - 1) / 16; i++)
        snprintf(out + 16 * i, 17, "%016llx", (unsigned long long)number[i]);
}

bool trace_context_begin(struct trace_context *out, const char *traceparent)
{
    bool is_sampled = true;
    *out = (struct trace_context){0};
    if (!traceparent || !read_parent(out, traceparent, &is_sampled))
        make_id(out->trace, sizeof out->trace);
    make_id(out->span, sizeof out->span);
    if (!is_sampled) *out = (struct trace_context){0};
    return is_sampled;
}
