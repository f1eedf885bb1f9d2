/* JSON numbers within bounds, digit by digit. Only without an exponent and leading zeros. */
#ifndef GRAMMAR_DIGITS_H
#define GRAMMAR_DIGITS_H

#include "grammar/expr.h"

enum {
    BOUND_DIGITS = 24,
    WHOLE_DIGITS = 18, /* of a number without an upper bound: it fits into 64 bits */
};

/* A bound as a decimal number: digits before the point, without leading zeros, and after it. */
struct decimal {
    bool is_given, is_exclusive, is_negative;
    char whole[BOUND_DIGITS],
        fraction[BOUND_DIGITS]; /* texts; whole "0" at least, fraction may be "" */
};

/* False: the value is not finite, or has more digits than that. */
bool decimal_from_real(double value, struct decimal *out);
void decimal_from_int(int64_t value, struct decimal *out);
int decimal_compare(const struct decimal *a, const struct decimal *b);

/* Integers from `low` to `high`, either of which may not be given. NULL: out of memory; EXPR_NEVER:
 * there are none. */
const struct expr *digits_integer(struct expr_builder *b, const struct decimal *low,
                                  const struct decimal *high);
/* Numbers; with a bound they have at most as many digits after the point as a double can tell apart
 * from the bound, and at least as many as the bound. */
const struct expr *digits_number(struct expr_builder *b, const struct decimal *low,
                                 const struct decimal *high);

#endif
