#include "base/pointer.h"

#include "base/hex.h"

/* The byte at *at, where %41 is one byte; moves *at on. -1: the end, or no byte. */
static int next_byte(const char **at, const char *end)
{
    if (*at == end) return -1;
    char c = *(*at)++;
    if (c != '%') return (unsigned char)c;
    if (end - *at < 2) return -1;
    int high = hex_value((*at)[0]), low = hex_value((*at)[1]);
    *at += 2;
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

int pointer_step(const char **at, const char *end, char out[POINTER_STEP_BYTES])
{
    int n = 0;
    if (next_byte(at, end) != '/') return -1;
    while (*at < end) {
        const char *p = *at;
        int c = next_byte(&p, end);
        if (c == '/') break;
        if (c == '~') {
            c = next_byte(&p, end);
            c = c == '0' ? '~' : c == '1' ? '/' : -1;
        }
        if (c <= 0 || n == POINTER_STEP_BYTES - 1) return -1;
        out[n++] = (char)c;
        *at = p;
    }
    out[n] = '\0';
    return n;
}

size_t pointer_index(const char *step)
{
    enum { DIGITS_MAX = 9 };
    size_t index = 0;
    int n = 0;
    for (; step[n] >= '0' && step[n] <= '9' && n < DIGITS_MAX; n++)
        index = index * 10 + (size_t)(step[n] - '0');
    if (n == 0 || step[n] || (step[0] == '0' && n > 1)) return SIZE_MAX;
    return index;
}
