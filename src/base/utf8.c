#include "base/utf8.h"

/* Bytes that a lead byte announces, 0 for a byte that cannot lead. */
static int announced(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

int utf8_read(const char *text, size_t length, uint32_t *code_point)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = announced(s[0]);
    if (n == 0 || (size_t)n > length) return 0;
    if (n == 1) {
        *code_point = s[0];
        return 1;
    }
    uint32_t c = s[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3Fu);
    }
    if (n == 3 && (c < 0x800 || (c >= 0xD800 && c <= 0xDFFF))) return 0;
    if (n == 4 && (c < 0x10000 || c > 0x10FFFF)) return 0;
    *code_point = c;
    return n;
}

size_t utf8_valid_prefix(const char *text, size_t length)
{
    uint32_t code_point;
    size_t valid = 0;
    for (int n = 1; n > 0 && valid < length; valid += (size_t)n)
        n = utf8_read(text + valid, length - valid, &code_point);
    return valid;
}

uint32_t utf16_pair(uint32_t high, uint32_t low)
{
    bool is_pair = high >= 0xD800 && high <= 0xDBFF && low >= 0xDC00 && low <= 0xDFFF;
    return is_pair ? 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00) : 0;
}

int utf8_write(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> n & 0xFFu) | c);
    return n;
}

size_t utf8_incomplete_tail(const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char c = s[length - back];
        if ((c & 0xC0) == 0x80) continue;
        int n = announced(c);
        if (n <= (int)back) return 0;
        /* Only a beginning that can still become valid is worth waiting for. */
        if (back >= 2) {
            unsigned char second = s[length - back + 1];
            if ((c == 0xE0 && second < 0xA0) || (c == 0xED && second > 0x9F) ||
                (c == 0xF0 && second < 0x90) || (c == 0xF4 && second > 0x8F))
                return 0;
        }
        return back;
    }
    return 0;
}

bool utf8_is_unprintable(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || (c >= 0x200E && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* Lower case of the scripts that keys are written in: Latin, Greek, Cyrillic. */
static uint32_t lower(uint32_t c)
{
    if (c < 128) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 32;
    if (c >= 0x100 && c <= 0x137) return c == 0x130 ? 'i' : c | 1;
    if (c >= 0x139 && c <= 0x148) return c + (c & 1);
    if (c >= 0x14A && c <= 0x177) return c | 1;
    if (c == 0x178) return 0xFF;
    if (c >= 0x179 && c <= 0x17E) return c + (c & 1);
    if (c == 0x1A0 || c == 0x1AF) return c + 1;
    if (c == 0x386) return 0x3AC;
    if (c >= 0x388 && c <= 0x38A) return c + 37;
    if (c == 0x38C) return 0x3CC;
    if (c >= 0x38E && c <= 0x38F) return c + 63;
    if (c >= 0x391 && c <= 0x3AB && c != 0x3A2) return c + 32;
    if (c >= 0x400 && c <= 0x40F) return c + 80;
    if (c >= 0x410 && c <= 0x42F) return c + 32;
    if (c >= 0x48A && c <= 0x4BF) return c | 1;
    if ((c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF)) return c | 1;
    return c;
}

/* The lowered code point at *at; a bad byte counts as itself. Moves *at on. */
static uint32_t next_lower(const char *text, size_t length, size_t *at)
{
    uint32_t c;
    int n = utf8_read(text + *at, length - *at, &c);
    if (n == 0) c = 0x110000u + (unsigned char)text[*at];
    *at += n ? (size_t)n : 1;
    return lower(c);
}

int utf8_compare_lower(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t i = 0, k = 0;
    while (i < a_length && k < b_length) {
        uint32_t x = next_lower(a, a_length, &i), y = next_lower(b, b_length, &k);
        if (x != y) return x < y ? -1 : 1;
    }
    return (i < a_length) - (k < b_length);
}
