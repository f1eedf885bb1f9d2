#include "json/json_fields.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

bool json_is_number(const struct carat_value *value)
{
    return value->kind == CARAT_INT || value->kind == CARAT_REAL;
}

double json_number(const struct carat_value *value)
{
    return value->kind == CARAT_INT ? (double)value->as.integer : value->as.real;
}

int json_wrong_kind(const char *key, const char *expected, const struct carat_value *found,
                    struct carat_error *err)
{
    return err_set(err, CARAT_EUSAGE, "%s: %s expected, %s found", key, expected,
                   json_kind_name(found));
}

/* Beyond it not every whole number is a double. */
static const double whole_max = 9007199254740992.0;
static const double int64_end = 9223372036854775808.0;

int json_whole(const struct carat_value *value, const char *key, int64_t low, int64_t high,
               int64_t *out, struct carat_error *err)
{
    bool is_real = value->kind == CARAT_REAL;
    if (!is_real && value->kind != CARAT_INT) return json_wrong_kind(key, "an integer", value, err);
    if (is_real && fabs(value->as.real) >= int64_end && trunc(value->as.real) == value->as.real)
        return err_set(err, CARAT_EUSAGE, "%s: an integer of 64 bits expected, %g found", key,
                       value->as.real);
    if (is_real && !(fabs(value->as.real) <= whole_max && trunc(value->as.real) == value->as.real))
        return err_set(err, CARAT_EUSAGE, "%s: an integer expected, %g found", key, value->as.real);
    *out = is_real ? (int64_t)value->as.real : value->as.integer;
    if (*out >= low && *out <= high) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: %lld to %lld expected, %lld found", key, (long long)low,
                   (long long)high, (long long)*out);
}

int json_read_flag(const struct carat_value *object, const char *key, bool *out,
                   struct carat_error *err)
{
    const struct carat_value *value = json_member(object, key);
    if (value->kind == CARAT_NULL) return CARAT_OK;
    if (value->kind != CARAT_BOOL) return json_wrong_kind(key, "a boolean", value, err);
    *out = value->as.boolean;
    return CARAT_OK;
}

int json_read_whole(const struct carat_value *object, const char *key, int64_t low, int64_t high,
                    int32_t *out, struct carat_error *err)
{
    const struct carat_value *value = json_member(object, key);
    if (value->kind == CARAT_NULL) return CARAT_OK;
    int64_t found = 0;
    TRY(json_whole(value, key, low, high, &found, err));
    *out = (int32_t)found;
    return CARAT_OK;
}

int json_read_text(const struct carat_value *object, const char *key, size_t most,
                   struct arena *arena, const char **out, struct carat_error *err)
{
    const struct carat_value *value = json_member(object, key);
    if (value->kind == CARAT_NULL) return CARAT_OK;
    if (value->kind != CARAT_STRING) return json_wrong_kind(key, "a string", value, err);
    size_t length = value->as.string.length;
    if (length > most)
        return err_set(err, CARAT_EUSAGE, "%s: at most %zu bytes expected, %zu found", key, most,
                       length);
    if (length && memchr(value->as.string.data, '\0', length))
        return err_set(err, CARAT_EUSAGE, "%s: a text without NUL characters expected", key);
    char *copy = arena_copy_text(arena, value->as.string.data, length);
    if (!copy) return err_no_memory(err, key, length);
    *out = copy;
    return CARAT_OK;
}
