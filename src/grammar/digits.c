/* Numbers between two bounds, as texts: while the digits so far are those of a bound, the next
 * digit has to mind it; after the first other digit, any will do. */
#include "grammar/digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRECISE_DIGITS = 15, FRACTION_DIGITS = 9, WAYS_MAX = 48 };

/* Alternatives that are collected. */
struct ways {
    const struct expr *items[WAYS_MAX];
    size_t n;
};

/* ---- Decimals --------------------------------------------------------------------------- */

bool decimal_from_real(double value, struct decimal *out)
{
    char text[64];
    if (!(value > -1e18 && value < 1e18)) return false;
    int precision = 1;
    do {
        snprintf(text, sizeof text, "%.*e", precision - 1, value);
    } while (strtod(text, NULL) != value && ++precision <= 17);
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent < -BOUND_DIGITS) return false;
    int places = precision - 1 - exponent;
    if (places < 0) places = 0;
    if (places >= BOUND_DIGITS) return false;
    snprintf(text, sizeof text, "%.*f", places, value < 0 ? -value : value);
    char *point = strchr(text, '.');
    if (point) *point = '\0';
    snprintf(out->whole, sizeof out->whole, "%.*s", BOUND_DIGITS - 1, text);
    snprintf(out->fraction, sizeof out->fraction, "%.*s", BOUND_DIGITS - 1, point ? point + 1 : "");
    for (size_t n = strlen(out->fraction); n > 0 && out->fraction[n - 1] == '0'; n--)
        out->fraction[n - 1] = '\0';
    out->is_negative = value < 0;
    return true;
}

void decimal_from_int(int64_t value, struct decimal *out)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    snprintf(out->whole, sizeof out->whole, "%llu", (unsigned long long)size);
    out->fraction[0] = '\0';
    out->is_negative = value < 0;
}

static int compare_whole(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    return n != m ? (n < m ? -1 : 1) : strcmp(a, b);
}

static int compare_sizes(const struct decimal *a, const struct decimal *b)
{
    int order = compare_whole(a->whole, b->whole);
    return order ? order : strcmp(a->fraction, b->fraction);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->is_negative != b->is_negative) return a->is_negative ? -1 : 1;
    return a->is_negative ? -compare_sizes(a, b) : compare_sizes(a, b);
}

static bool is_zero(const struct decimal *d)
{
    return strcmp(d->whole, "0") == 0 && d->fraction[0] == '\0';
}

/* whole + 1 or - 1 (of a number above 0). */
static void add_one(char whole[BOUND_DIGITS])
{
    size_t n = strlen(whole), i = n;
    while (i > 0 && whole[i - 1] == '9') whole[--i] = '0';
    if (i > 0) {
        whole[i - 1]++;
    } else if (n + 1 < BOUND_DIGITS) {
        memmove(whole + 1, whole, n + 1);
        whole[0] = '1';
    }
}

static void take_one(char whole[BOUND_DIGITS])
{
    size_t n = strlen(whole), i = n;
    while (i > 0 && whole[i - 1] == '0') whole[--i] = '9';
    if (i > 0) whole[i - 1]--;
    if (whole[0] == '0' && n > 1) memmove(whole, whole + 1, n);
}

/* ---- Whole numbers ---------------------------------------------------------------------- */

static void add_way(struct ways *w, const struct expr *e)
{
    if (w->n < WAYS_MAX) w->items[w->n++] = e;
}

static const struct expr *either(struct expr_builder *b, const struct ways *w)
{
    return expr_either(b, w->items, w->n);
}

static const struct expr *digit(struct expr_builder *b, char first, char last)
{
    struct char_range r = {(unsigned char)first, (unsigned char)last};
    return expr_class(b, &r, first <= last, false);
}

static const struct expr *digits(struct expr_builder *b, uint32_t least, uint32_t most)
{
    return expr_repeat(b, digit(b, '0', '9'), least, most);
}

/* `n` digits, as a number from `low` to `high`, which have as many. NULL: no such bound. */
static const struct expr *between_digits(struct expr_builder *b, size_t n, const char *low,
                                         const char *high)
{
    struct ways w = {.n = 0};
    if (low && strspn(low, "0") == n) low = NULL;
    if (high && strspn(high, "9") == n) high = NULL;
    if (!low && !high) return digits(b, (uint32_t)n, (uint32_t)n);
    const char *below = low ? low + 1 : NULL, *above = high ? high + 1 : NULL;
    char first = low ? low[0] : '0', last = high ? high[0] : '9';
    n--;
    if (low && high && first == last)
        return expr_then(b, digit(b, first, last), between_digits(b, n, below, above));
    if (low) add_way(&w, expr_then(b, digit(b, first, first), between_digits(b, n, below, NULL)));
    if (high) add_way(&w, expr_then(b, digit(b, last, last), between_digits(b, n, NULL, above)));
    if (low) first++;
    if (high) last--;
    if (first <= last)
        add_way(&w, expr_then(b, digit(b, first, last), digits(b, (uint32_t)n, (uint32_t)n)));
    return either(b, &w);
}

/* Whole numbers of n digits from low to high; high NULL: all from low on. */
static const struct expr *whole_of_length(struct expr_builder *b, size_t n, const char *low,
                                          const char *high)
{
    char least[BOUND_DIGITS] = "1"; /* no number begins with 0 */
    memset(least + 1, '0', n - 1);
    least[n] = '\0';
    return between_digits(b, n, n == strlen(low) ? low : least,
                          high && n == strlen(high) ? high : NULL);
}

/* Whole numbers from low to high; high NULL: all from low on. */
static const struct expr *whole_range(struct expr_builder *b, const char *low, const char *high)
{
    struct ways w = {.n = 0};
    size_t n = strlen(low), last = high ? strlen(high) : n;
    if (high && compare_whole(low, high) > 0) return expr_never(b);
    for (size_t length = n; length <= last; length++)
        add_way(&w, whole_of_length(b, length, low, high));
    if (!high && n < WHOLE_DIGITS)
        add_way(&w, expr_then(b, digit(b, '1', '9'), digits(b, (uint32_t)n, WHOLE_DIGITS - 1)));
    return either(b, &w);
}

/* ---- Signs ------------------------------------------------------------------------------ */

/* Numbers of one sign between two absolute values, the larger of which may be missing. */
typedef const struct expr *sizes_fn(struct expr_builder *b, const struct decimal *low,
                                    const struct decimal *high);

static const struct expr *both_signs(struct expr_builder *b, const struct decimal *low,
                                     const struct decimal *high, sizes_fn *sizes)
{
    static const struct decimal zero = {.is_given = true, .whole = "0"};
    struct ways w = {.n = 0};
    bool may_be_negative = !low->is_given || low->is_negative;
    bool may_be_positive = !high->is_given || !high->is_negative;
    if (low->is_given && high->is_given) {
        int order = decimal_compare(low, high);
        if (order > 0 || (order == 0 && (low->is_exclusive || high->is_exclusive)))
            return expr_never(b);
    }
    if (may_be_negative) {
        bool is_bound = high->is_given && (high->is_negative || is_zero(high));
        add_way(&w, expr_then(b, expr_text(b, "-"), sizes(b, is_bound ? high : &zero, low)));
    }
    if (may_be_positive) {
        bool is_bound = low->is_given && !low->is_negative;
        add_way(&w, sizes(b, is_bound ? low : &zero, high));
    }
    return either(b, &w);
}

static const struct expr *integer_sizes(struct expr_builder *b, const struct decimal *low,
                                        const struct decimal *high)
{
    struct decimal from = *low, to = *high;
    if (from.fraction[0] || from.is_exclusive) add_one(from.whole);
    if (!to.is_given) return whole_range(b, from.whole, NULL);
    if (!to.fraction[0] && to.is_exclusive) {
        if (strcmp(to.whole, "0") == 0) return expr_never(b);
        take_one(to.whole);
    }
    return whole_range(b, from.whole, to.whole);
}

const struct expr *digits_integer(struct expr_builder *b, const struct decimal *low,
                                  const struct decimal *high)
{
    return both_signs(b, low, high, integer_sizes);
}

/* ---- Fractions -------------------------------------------------------------------------- */

/* Digits after the point, of which `at` are read, that have so far been those of a bound. */
struct fraction {
    struct expr_builder *b;
    const struct decimal *low, *high; /* NULL: none, or left already */
    uint32_t at, most;
};

static char fraction_digit(const struct decimal *d, uint32_t at)
{
    return at < strlen(d->fraction) ? d->fraction[at] : '0';
}

static bool rest_is_zero(const struct decimal *d, uint32_t at)
{
    return at >= strlen(d->fraction);
}

/* Whether the number may end here. */
static bool may_end(const struct fraction *f)
{
    if (f->low && (!rest_is_zero(f->low, f->at) || f->low->is_exclusive)) return false;
    return !f->high || !rest_is_zero(f->high, f->at) || !f->high->is_exclusive;
}

/* At least one more digit; EXPR_NEVER if there is none that fits. */
static const struct expr *more_digits(const struct fraction *f)
{
    struct expr_builder *b = f->b;
    if (f->at >= f->most) return expr_never(b);
    if (!f->low && !f->high) return digits(b, 1, f->most - f->at);
    struct ways w = {.n = 0};
    char first = f->low ? fraction_digit(f->low, f->at) : '0';
    char last = f->high ? fraction_digit(f->high, f->at) : '9';
    for (char c = first; c <= last;) {
        bool minds_low = f->low && c == first, minds_high = f->high && c == last;
        struct fraction next = *f;
        next.at++;
        if (!minds_low) next.low = NULL;
        if (!minds_high) next.high = NULL;
        /* All digits between the bounds at once. */
        char to = minds_low || minds_high ? c : f->high ? (char)(last - 1) : last;
        const struct expr *more = more_digits(&next);
        if (may_end(&next)) more = expr_optional(b, more);
        add_way(&w, expr_then(b, digit(b, c, to), more));
        c = (char)(to + 1);
    }
    return either(b, &w);
}

static const struct expr *with_fraction(struct expr_builder *b, const char *whole,
                                        const struct decimal *low, const struct decimal *high,
                                        uint32_t most)
{
    struct fraction f = {.b = b, .low = low, .high = high, .most = most};
    const struct expr *more = expr_then(b, expr_text(b, "."), more_digits(&f));
    if (may_end(&f)) more = expr_optional(b, more);
    return expr_then(b, expr_text(b, whole), more);
}

/* How many digits may follow so many before the point: together no more than a double tells apart,
 * or a number just below a bound could be read as one above it. */
static uint32_t decimals_after(size_t n)
{
    return n < PRECISE_DIGITS - FRACTION_DIGITS ? FRACTION_DIGITS
           : n < PRECISE_DIGITS                 ? (uint32_t)(PRECISE_DIGITS - n)
                                                : 1;
}

static const struct expr *any_fraction(struct expr_builder *b, const struct expr *whole, size_t n)
{
    const struct expr *any = expr_then(b, expr_text(b, "."), digits(b, 1, decimals_after(n)));
    return expr_then(b, whole, expr_optional(b, any));
}

/* Numbers from the whole number `low` to `high` and any fraction more. */
static const struct expr *number_range(struct expr_builder *b, const char *low, const char *high)
{
    struct ways w = {.n = 0};
    if (compare_whole(low, high) > 0) return expr_never(b);
    for (size_t n = strlen(low); n <= strlen(high); n++)
        add_way(&w, any_fraction(b, whole_of_length(b, n, low, high), n));
    return either(b, &w);
}

static const struct expr *number_sizes(struct expr_builder *b, const struct decimal *low,
                                       const struct decimal *high)
{
    struct ways w = {.n = 0};
    uint32_t given = (uint32_t)strlen(low->fraction);
    if (high->is_given && strlen(high->fraction) > given) given = (uint32_t)strlen(high->fraction);
    uint32_t after_low = decimals_after(strlen(low->whole));
    uint32_t after_high = high->is_given ? decimals_after(strlen(high->whole)) : 0;
    if (after_low <= given) after_low = given + 1;
    if (after_high <= given) after_high = given + 1;
    bool is_same = high->is_given && strcmp(low->whole, high->whole) == 0;
    add_way(&w, with_fraction(b, low->whole, low, is_same ? high : NULL, after_low));
    if (is_same) return either(b, &w);
    char from[BOUND_DIGITS], to[BOUND_DIGITS];
    memcpy(from, low->whole, sizeof from);
    memcpy(to, high->whole, sizeof to);
    add_one(from);
    if (high->is_given) {
        add_way(&w, with_fraction(b, high->whole, NULL, high, after_high));
        if (strcmp(to, "0") != 0) take_one(to);
        add_way(&w, number_range(b, from, to));
    } else {
        add_way(&w, any_fraction(b, whole_range(b, from, NULL), strlen(low->whole)));
    }
    return either(b, &w);
}

const struct expr *digits_number(struct expr_builder *b, const struct decimal *low,
                                 const struct decimal *high)
{
    return both_signs(b, low, high, number_sizes);
}
