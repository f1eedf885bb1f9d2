/* Values of a request as the template's language sees them: truth, order, numbers, white
 * space follow Python, because the published prompts were made with it. */
#include "text/chat_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- The prompt ------------------------------------------------------------------------- */

void prompt_spend(struct prompt *p, size_t count)
{
    size_t left = PROMPT_BYTES_MAX + 1 - p->n_spent; /* one more: too much was wanted */
    p->n_spent += count < left ? count : left;
}

int prompt_check(const struct prompt *p, struct carat_error *err)
{
    if (p->failed || p->text.failed) return err_no_memory(err, "prompt", p->text.length);
    if (p->n_spent <= PROMPT_BYTES_MAX) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "prompt: at most %d bytes expected, the request makes more",
            PROMPT_BYTES_MAX);
    err_hint(err, "a text that is referred to, or a name, is repeated each time");
    return CARAT_EUSAGE;
}

static void extend_span(struct prompt *p, enum carat_special special)
{
    if (p->n_spans == 0 || p->spans[p->n_spans - 1].special != special) {
        if (p->n_spans == p->capacity) {
            size_t larger = p->capacity ? p->capacity * 2 : 64;
            void *resized = mem_resize(p->spans, larger, sizeof *p->spans);
            if (!resized) {
                p->failed = true;
                return;
            }
            p->spans = resized;
            p->capacity = larger;
        }
        p->spans[p->n_spans++].special = special;
        prompt_spend(p, sizeof *p->spans);
    }
    p->spans[p->n_spans - 1].end = p->text.length;
}

static void add(struct prompt *p, const char *data, size_t length, enum carat_special special)
{
    prompt_spend(p, length);
    if (length == 0 || p->n_spent > PROMPT_BYTES_MAX) return;
    buf_add(&p->text, data, length);
    extend_span(p, special);
}

void prompt_mark(struct prompt *p, const char *template_text)
{
    add(p, template_text, strlen(template_text), CARAT_SPECIAL_ALL);
}

void prompt_text(struct prompt *p, const char *data, size_t length)
{
    add(p, data, length, CARAT_SPECIAL_NONE);
}

void prompt_deinit(struct prompt *p)
{
    buf_deinit(&p->text);
    mem_free(p->spans);
    *p = (struct prompt){0};
}

/* ---- Values ----------------------------------------------------------------------------- */

bool value_is(const struct carat_value *value, enum carat_value_kind kind)
{
    return value && value->kind == kind;
}

const struct carat_value *value_get(const struct carat_value *value, const char *key)
{
    if (!value_is(value, CARAT_OBJECT)) return NULL;
    size_t length = strlen(key);
    for (size_t i = value->as.object.count; i-- > 0;) {
        const struct carat_member *m = &value->as.object.members[i];
        if (m->key.length == length && memcmp(m->key.data, key, length) == 0) return &m->value;
    }
    return NULL;
}

bool value_is_true(const struct carat_value *value)
{
    if (!value) return false;
    switch (value->kind) {
    case CARAT_NULL: return false;
    case CARAT_BOOL: return value->as.boolean;
    case CARAT_INT: return value->as.integer != 0;
    case CARAT_REAL: return value->as.real != 0.0;
    case CARAT_STRING: return value->as.string.length > 0;
    case CARAT_ARRAY: return value->as.array.count > 0;
    case CARAT_OBJECT: return value->as.object.count > 0;
    }
    return false;
}

struct text value_text(const struct carat_value *value)
{
    if (!value_is(value, CARAT_STRING)) return (struct text){"", 0};
    return (struct text){value->as.string.data, value->as.string.length};
}

bool text_is(struct text a, const char *text)
{
    return a.length == strlen(text) && memcmp(a.data, text, a.length) == 0;
}

const char *value_kind_name(const struct carat_value *value)
{
    if (!value) return "nothing";
    switch (value->kind) {
    case CARAT_NULL: return "null";
    case CARAT_BOOL: return "a boolean";
    case CARAT_INT: return "an integer";
    case CARAT_REAL: return "a number";
    case CARAT_STRING: return "a string";
    case CARAT_ARRAY: return "an array";
    case CARAT_OBJECT: return "an object";
    }
    return "nothing";
}

int name_check(const struct carat_value *name, struct carat_error *err)
{
    size_t length = value_text(name).length;
    if (length <= NAME_BYTES_MAX) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "name: at most %d bytes expected, %zu found", NAME_BYTES_MAX,
                   length);
}

const char *text_shown(struct text t, char out[SHOWN_MAX])
{
    size_t n = 0;
    for (; n < t.length && n < SHOWN_MAX - 4; n++) {
        unsigned char c = (unsigned char)t.data[n];
        out[n] = c >= ' ' && c < 127 ? (char)c : '?';
    }
    if (n < t.length) {
        memcpy(out + n, "...", 3);
        n += 3;
    }
    out[n] = '\0';
    return out;
}

/* ---- Order ------------------------------------------------------------------------------ */

static int compare_members(const void *left, const void *right)
{
    const struct carat_member *a = *(const struct carat_member *const *)left;
    const struct carat_member *b = *(const struct carat_member *const *)right;
    int order = utf8_compare_lower(a->key.data, a->key.length, b->key.data, b->key.length);
    if (order) return order;
    return (a > b) - (a < b); /* both are in one array */
}

int value_sorted(const struct carat_value *object, const struct carat_member ***out,
                 struct carat_error *err)
{
    size_t count = object->as.object.count;
    const struct carat_member **order = mem_alloc(count, sizeof *order);
    *out = order;
    if (!order) return err_no_memory(err, "members of an object", count * sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = &object->as.object.members[i];
    if (count > 1) qsort(order, count, sizeof *order, compare_members);
    return CARAT_OK;
}

/* ---- White space and numbers ------------------------------------------------------------ */

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

struct text text_trim(struct text t)
{
    uint32_t c;
    int n;
    while (t.length && (n = utf8_read(t.data, t.length, &c)) > 0 && is_space(c)) {
        t.data += n;
        t.length -= (size_t)n;
    }
    while (t.length) {
        size_t back = 1;
        while (back < 4 && back < t.length &&
               ((unsigned char)t.data[t.length - back] & 0xC0) == 0x80)
            back++;
        n = utf8_read(t.data + t.length - back, back, &c);
        if (n != (int)back || !is_space(c)) break;
        t.length -= back;
    }
    return t;
}

/* The shortest digits that read back as x > 0, without the point; the exponent of the first. */
static int shortest_digits(double x, char digits[20], int *exponent)
{
    char text[NUMBER_TEXT_MAX];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, x);
        if (strtod(text, NULL) == x) break;
    }
    int n = 0;
    const char *s = text;
    /* The point may be any bytes: it is the locale's. */
    for (; *s && *s != 'e'; s++)
        if (*s >= '0' && *s <= '9' && n < 18) digits[n++] = *s;
    *exponent = *s ? (int)strtol(s + 1, NULL, 10) : 0;
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = '\0';
    return n;
}

static size_t real_text(double x, char out[NUMBER_TEXT_MAX])
{
    if (isnan(x)) return (size_t)snprintf(out, NUMBER_TEXT_MAX, "nan");
    const char *sign = signbit(x) ? "-" : "";
    if (isinf(x)) return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%sinf", sign);
    if (x == 0.0) return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%s0.0", sign);
    char digits[20];
    int e, n = shortest_digits(fabs(x), digits, &e);
    if (e < -4 || e >= 16) /* 1e-05, 1.5e+16 */
        return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%s%c%s%se%c%02d", sign, digits[0],
                                n > 1 ? "." : "", digits + 1, e < 0 ? '-' : '+', abs(e));
    if (e < 0) /* 0.0001 */
        return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%s0.%.*s%s", sign, -e - 1, "000", digits);
    if (n <= e + 1) /* 1200.0 */
        return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%s%s%.*s.0", sign, digits, e + 1 - n,
                                "000000000000000");
    return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%s%.*s.%s", sign, e + 1, digits, digits + e + 1);
}

size_t number_text(const struct carat_value *number, char out[NUMBER_TEXT_MAX])
{
    if (number->kind == CARAT_REAL) return real_text(number->as.real, out);
    return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%lld", (long long)number->as.integer);
}

/* ---- Paths ------------------------------------------------------------------------------ */

int schema_within(struct carat_error *err, const char *before, struct text key)
{
    enum { SHOWN_PATH_MAX = 200 };
    char shown[SHOWN_MAX];
    if (err->code != CARAT_EUSAGE) return err->code;
    if (strncmp(err->message, "...", 3) == 0) return err->code;
    if (strlen(err->message) > SHOWN_PATH_MAX) return err_within(err, "...");
    return err_within(err, "%s%s", before, text_shown(key, shown));
}
