#include "api/custom_input.h"

#include <stdint.h>
#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"

static const char head[] = "{\"input\":\"";
enum { HEAD = sizeof head - 1 };

static void read_head(struct custom_input *c, const char *json, size_t length)
{
    size_t n = length < HEAD ? length : HEAD;
    if (memcmp(json, head, n) != 0) {
        c->place = INPUT_OTHER;
    } else if (n == HEAD) {
        c->place = INPUT_TEXT;
        c->at = HEAD;
    }
}

/* The four digits of \uXXXX. */
static bool read_unit(const char *digits, uint32_t *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        int value = hex_value(digits[i]);
        if (value < 0) return false;
        *unit = *unit << 4 | (uint32_t)value;
    }
    return true;
}

enum { UNIT = 6, PAIR = 12 }; /* bytes of \uXXXX, and of a surrogate pair */

/* Appends what \uXXXX, or a pair of them, stands for. Returns the bytes read; 0: not all have
 * come. */
static size_t read_character(const char *at, size_t left, struct buf *text)
{
    uint32_t unit, low, pair = 0;
    char utf8[4];
    if (left < UNIT) return 0;
    if (!read_unit(at + 2, &unit)) unit = 0xFFFD;
    bool is_high = unit >= 0xD800 && unit < 0xDC00;
    if (is_high && left < PAIR) return 0;
    if (is_high && at[UNIT] == '\\' && at[UNIT + 1] == 'u' && read_unit(at + UNIT + 2, &low))
        pair = utf16_pair(unit, low);
    if (unit >= 0xD800 && unit < 0xE000) unit = pair ? pair : 0xFFFD;
    buf_add(text, utf8, (size_t)utf8_write(unit, utf8));
    return pair ? PAIR : UNIT;
}

/* The same for any escape: `at` is its backslash. */
static size_t read_escape(const char *at, size_t left, struct buf *text)
{
    static const char codes[] = "nrtbf", meant[] = "\n\r\t\b\f";
    if (left < 2) return 0;
    if (at[1] == 'u') return read_character(at, left, text);
    const char *code = memchr(codes, at[1], sizeof codes - 1);
    buf_add_char(text, code ? meant[code - codes] : at[1]);
    return 2;
}

/* Up to the next escape or the end of the string. Bytes that only begin a character wait. */
static size_t read_plain(const char *at, size_t left, struct buf *text)
{
    size_t n = 0;
    while (n < left && at[n] != '\\' && at[n] != '"') n++;
    if (n == left) n -= utf8_incomplete_tail(at, n);
    buf_add(text, at, n);
    return n;
}

void custom_input_read(struct custom_input *c, const char *json, size_t length, struct buf *text)
{
    if (c->place == INPUT_HEAD) read_head(c, json, length);
    while (c->place == INPUT_TEXT && c->at < length) {
        const char *at = json + c->at;
        if (*at == '"') {
            c->place = INPUT_OVER;
            return;
        }
        size_t used = (*at == '\\' ? read_escape : read_plain)(at, length - c->at, text);
        if (used == 0) return;
        c->at += used;
    }
}
