/* A recursive reader whose loops each consume at least one byte. Nothing is an error: what is
 * out of place is skipped or taken as text, and `repaired` is set.
 *
 * Strings stand between two equal marks and escape nothing. Where a mark is missing, the
 * kind of the other one follows from its surroundings: a closing mark is followed by , } ] or the
 * end; an opening mark follows a colon, a comma or a bracket. */
#include "text/call_syntax.h"

#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"

struct reader {
    const char *s;
    size_t n, at;
    int depth;
    bool repaired, was_closed;
    size_t mark_from, mark_found; /* no mark begins in between */
    bool mark_closes;             /* the mark at mark_found, judged by its surroundings */
    struct json json;
};

static void read_value(struct reader *r);

static void skip_blanks(struct reader *r)
{
    while (r->at < r->n && call_is_blank(r->s[r->at])) r->at++;
}

static bool at_mark(const struct reader *r, size_t at)
{
    return at < r->n && r->s[at] == CALL_MARK;
}

static bool is_end_of_value(const struct reader *r, size_t at)
{
    while (at < r->n && call_is_blank(r->s[at])) at++;
    return at == r->n || r->s[at] == ',' || call_is_closer(r->s[at]);
}

/* Whether a mark looks like a closing one: no colon, comma or opening bracket stands before it, and
 * a value may end after it. */
static bool looks_closing(const struct reader *r, size_t mark)
{
    size_t before = mark;
    while (before > 0 && call_is_blank(r->s[before - 1])) before--;
    return (before == 0 || !strchr(":,[{", r->s[before - 1])) && is_end_of_value(r, mark + 1);
}

/* Position of the next mark, n when there is none. The result is remembered with its surroundings,
 * so that many values before one mark, or before the blanks around it, do not each search again. */
static size_t find_mark(struct reader *r, size_t from)
{
    if (from >= r->mark_from && from <= r->mark_found) return r->mark_found;
    const char *found = memchr(r->s + from, CALL_MARK, r->n - from);
    r->mark_from = from;
    r->mark_found = found ? (size_t)(found - r->s) : r->n;
    r->mark_closes = found && looks_closing(r, r->mark_found);
    return r->mark_found;
}

static void trim(const char *s, size_t *begin, size_t *end)
{
    while (*begin < *end && call_is_blank(s[*begin])) ++*begin;
    while (*end > *begin && call_is_blank(s[*end - 1])) --*end;
}

static void write_raw(struct json *json, const char *text, size_t length)
{
    if (json->need_comma) buf_add_char(json->out, ',');
    buf_add(json->out, text, length);
    json->need_comma = true;
}

void call_add_text(struct buf *out, const char *text, size_t length)
{
    for (const char *end = text + length; text < end;) {
        const char *mark = memchr(text, CALL_MARK, (size_t)(end - text));
        buf_add(out, text, (size_t)((mark ? mark : end) - text));
        text = mark ? mark + 1 : end;
    }
}

/* A text that may have marks in it where none belong. */
static void write_repaired(struct reader *r, const char *text, size_t length)
{
    struct buf whole = {0};
    if (!memchr(text, CALL_MARK, length)) {
        json_text(&r->json, text, length);
        return;
    }
    call_add_text(&whole, text, length);
    json_text(&r->json, buf_text(&whole), whole.length);
    if (whole.failed) r->json.out->failed = true;
    r->repaired = true;
    buf_deinit(&whole);
}

static void write_key(struct reader *r, const char *text, size_t length)
{
    write_repaired(r, text, length);
    buf_add_char(r->json.out, ':');
    r->json.need_comma = false;
}

/* ---- Strings ---------------------------------------------------------------------------- */

/* The beginning of a ", key:" that ends right before `end`; 0 if there is none. call_stream.c
 * follows the same tail character by character. */
static size_t key_before(const struct reader *r, size_t begin, size_t end)
{
    while (end > begin && (call_is_blank(r->s[end - 1]) || r->s[end - 1] == '[')) end--;
    if (end == begin || r->s[end - 1] != ':') return 0;
    size_t word = end - 1, i;
    while (word > begin && call_is_word(r->s[word - 1])) word--;
    size_t length = end - 1 - word;
    for (i = word; i > begin && r->s[i - 1] == ' ';) i--;
    return length >= 1 && length <= CALL_WORD_MAX && i > begin && r->s[i - 1] == ',' ? i - 1 : 0;
}

/* Without a closing mark the string takes the rest, except brackets that close open containers. */
static void read_unclosed(struct reader *r)
{
    size_t end = r->n;
    int open = r->was_closed ? r->depth : 0;
    for (;
         open > 0 && end > r->at && (call_is_closer(r->s[end - 1]) || call_is_blank(r->s[end - 1]));
         end--)
        if (call_is_closer(r->s[end - 1])) open--;
    json_text(&r->json, r->s + r->at, end - r->at);
    r->at = r->n;
    r->repaired = true;
}

/* Starts after an opening mark. */
static void read_marked(struct reader *r)
{
    size_t end = find_mark(r, r->at);
    if (end == r->n) {
        read_unclosed(r);
        return;
    }
    size_t comma = is_end_of_value(r, end + 1) ? 0 : key_before(r, r->at, end);
    json_text(&r->json, r->s + r->at, (comma ? comma : end) - r->at);
    r->at = comma ? comma : end + 1;
    if (comma) r->repaired = true;
}

static bool read_hex(const struct reader *r, size_t at, uint32_t *out)
{
    *out = 0;
    if (r->n - at < 4) return false;
    for (size_t i = 0; i < 4; i++) {
        int digit = hex_value(r->s[at + i]);
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* `at` follows a backslash and is inside the text. Adds what is meant; returns the bytes read. */
static size_t read_escape(const struct reader *r, size_t at, struct buf *out)
{
    static const char codes[] = "nrtbf", meant[] = "\n\r\t\b\f";
    char c = r->s[at], utf8[4];
    const char *code = memchr(codes, c, sizeof codes - 1);
    if (code) c = meant[code - codes];
    uint32_t unit, low, pair = 0;
    if (c != 'u' || !read_hex(r, at + 1, &unit)) {
        buf_add_char(out, c);
        return 1;
    }
    bool has_second = r->n - at >= 11 && r->s[at + 5] == '\\' && r->s[at + 6] == 'u';
    if (has_second && read_hex(r, at + 7, &low)) pair = utf16_pair(unit, low);
    if (unit >= 0xD800 && unit < 0xE000) unit = pair ? pair : 0xFFFD;
    buf_add(out, utf8, (size_t)utf8_write(unit, utf8));
    return pair ? 11 : 5;
}

/* A string in JSON's or Python's quotes. Returns false and reads nothing when the string does not
 * end where a value may end: then the quote is part of a text without marks. */
static bool read_quoted(struct reader *r)
{
    char quote = r->s[r->at];
    struct buf text = {0};
    size_t i = r->at + 1;
    while (i < r->n && r->s[i] != quote) {
        if (r->s[i] == '\\' && i + 1 < r->n)
            i += 1 + read_escape(r, i + 1, &text);
        else
            buf_add_char(&text, r->s[i++]);
    }
    bool is_whole = i < r->n && is_end_of_value(r, i + 1);
    if (is_whole) {
        write_repaired(r, buf_text(&text), text.length);
        r->at = i + 1;
        r->repaired = true;
    }
    if (text.failed) r->json.out->failed = true;
    buf_deinit(&text);
    return is_whole;
}

/* ---- Bare values ------------------------------------------------------------------------ */

static size_t skip_digits(const char *s, size_t n, size_t i)
{
    while (i < n && s[i] >= '0' && s[i] <= '9') i++;
    return i;
}

static bool is_number(const char *s, size_t n)
{
    size_t i = n && s[0] == '-' ? 1 : 0, begin = i;
    i = skip_digits(s, n, i);
    if (i == begin || (s[begin] == '0' && i > begin + 1)) return false;
    if (i < n && s[i] == '.') {
        begin = ++i;
        i = skip_digits(s, n, i);
        if (i == begin) return false;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-')) i++;
        begin = i;
        i = skip_digits(s, n, i);
        if (i == begin) return false;
    }
    return i == n;
}

bool call_write_literal(struct json *json, const char *text, size_t length, bool *is_exact)
{
    static const struct {
        const char *found, *json;
    } words[] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                 {"True", "true"}, {"False", "false"}, {"None", "null"}};
    *is_exact = true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].found) != length || memcmp(words[i].found, text, length) != 0) continue;
        write_raw(json, words[i].json, strlen(words[i].json));
        *is_exact = i < 3;
        return true;
    }
    if (!is_number(text, length)) return false;
    write_raw(json, text, length);
    return true;
}

static void read_bare(struct reader *r)
{
    size_t begin = r->at, end = begin;
    while (end < r->n && r->s[end] != ',' && !call_is_closer(r->s[end]) && !at_mark(r, end)) end++;
    r->at = end;
    size_t last = end;
    trim(r->s, &begin, &last);
    bool at_closing_mark = at_mark(r, end), is_exact;
    if (!at_closing_mark && call_write_literal(&r->json, r->s + begin, last - begin, &is_exact)) {
        if (!is_exact) r->repaired = true;
        return;
    }
    r->repaired = true;
    if (!at_closing_mark && begin == last) {
        json_put_null(&r->json);
        return;
    }
    /* A text without its opening mark, perhaps with commas and brackets in it. */
    size_t close = at_closing_mark ? end : find_mark(r, end);
    bool is_closing = at_closing_mark || r->mark_closes;
    json_text(&r->json, r->s + begin, (is_closing ? close : last) - begin);
    if (is_closing) r->at = close + 1;
}

/* ---- Containers ------------------------------------------------------------------------- */

/* Steps over what may stand between members: a comma, and repairs. Returns false at the end of
 * the container, `closer` consumed. */
static bool next_member(struct reader *r, char closer, bool is_first)
{
    bool has_comma = is_first;
    for (;;) {
        skip_blanks(r);
        if (r->at == r->n) {
            r->repaired = true;
            return false;
        }
        char c = r->s[r->at];
        if (c == closer) {
            r->at++;
            if (!is_first && has_comma) r->repaired = true; /* [1,] */
            return false;
        }
        if (c == ',') {
            if (has_comma) r->repaired = true;
            has_comma = true;
        } else if (call_is_closer(c)) {
            r->repaired = true;
        } else {
            if (!has_comma) r->repaired = true;
            return true;
        }
        r->at++;
    }
}

/* A key and its colon. Consumes at least one byte. */
static void read_key(struct reader *r, char separator)
{
    size_t begin = r->at, end = begin;
    if (at_mark(r, begin)) {
        begin += 1;
        end = find_mark(r, begin);
        r->at = end == r->n ? end : end + 1;
        r->repaired = true;
    } else if (r->s[begin] == '"' || r->s[begin] == '\'') {
        char quote = r->s[begin++];
        for (end = begin; end < r->n && r->s[end] != quote;) end++;
        r->at = end == r->n ? end : end + 1;
        r->repaired = true;
    } else {
        while (end < r->n && r->s[end] != ':' && r->s[end] != separator && r->s[end] != ',' &&
               !call_is_closer(r->s[end]))
            end++;
        r->at = end;
        trim(r->s, &begin, &end);
    }
    write_key(r, r->s + begin, end - begin);
    skip_blanks(r);
    if (r->at < r->n && (r->s[r->at] == ':' || r->s[r->at] == separator))
        r->at++;
    else
        r->repaired = true;
}

static void read_object(struct reader *r, char closer)
{
    json_begin_object(&r->json);
    r->depth++;
    for (bool is_first = true; next_member(r, closer, is_first); is_first = false) {
        read_key(r, closer == ')' ? '=' : ':');
        read_value(r);
    }
    r->depth--;
    json_end_object(&r->json);
}

static void read_array(struct reader *r)
{
    json_begin_array(&r->json);
    r->depth++;
    for (bool is_first = true; next_member(r, ']', is_first); is_first = false) read_value(r);
    r->depth--;
    json_end_array(&r->json);
}

/* Consumes at least one byte unless a comma or a closing bracket comes, which the container's
 * loop consumes. */
static void read_value(struct reader *r)
{
    skip_blanks(r);
    if (r->at == r->n || r->depth >= CALL_DEPTH_MAX) {
        r->at = r->n;
        r->repaired = true;
        json_put_null(&r->json);
        return;
    }
    char c = r->s[r->at];
    if (at_mark(r, r->at)) {
        r->at += 1;
        read_marked(r);
    } else if (c == '{') {
        r->at++;
        read_object(r, '}');
    } else if (c == '[') {
        r->at++;
        read_array(r);
    } else if ((c != '"' && c != '\'') || !read_quoted(r)) {
        read_bare(r);
    }
}

static size_t find_brace(const char *text, size_t length)
{
    size_t brace = 0;
    while (brace < length && text[brace] != '{' && text[brace] != '(') brace++;
    return brace;
}

void call_add_name(struct buf *out, const char *text, size_t length)
{
    size_t begin = 0, end = find_brace(text, length);
    while (begin < end && !call_is_of_name(text[begin])) begin++;
    while (end > begin && !call_is_of_name(text[end - 1])) end--;
    call_add_text(out, text + begin, end - begin);
}

bool call_read(const char *text, size_t length, bool was_closed, struct buf *name, struct buf *json)
{
    size_t brace = find_brace(text, length), begin = name->length;
    call_add_name(name, text, length);
    struct reader r = {.s = text,
                       .n = length,
                       .at = brace,
                       .was_closed = was_closed,
                       .mark_from = 1,
                       .json = {.out = json}};
    if (brace == length) {
        buf_add_text(json, "{}");
        return false;
    }
    r.repaired = text[brace] == '(' || name->length - begin != brace;
    r.at++;
    read_object(&r, text[brace] == '(' ? ')' : '}');
    skip_blanks(&r);
    return !r.repaired && r.at == length;
}
