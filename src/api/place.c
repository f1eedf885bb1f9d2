#include "api/place.h"

#include <stdio.h>

#include "base/status.h"
#include "json/json_fields.h"

struct place place_body(const struct carat_value *body)
{
    return (struct place){.value = body};
}

struct place place_member(const struct place *object, const char *key)
{
    struct place p = {.value = json_member(object->value, key)};
    const char *dot = object->path[0] ? "." : "";
    snprintf(p.path, sizeof p.path, "%.100s%s%.40s", object->path, dot, key);
    return p;
}

struct place place_item(const struct place *array, size_t i)
{
    struct place p = {.value = &array->value->as.array.items[i]};
    snprintf(p.path, sizeof p.path, "%.120s[%zu]", array->path, i);
    return p;
}

bool place_is_null(const struct place *p)
{
    return p->value->kind == CARAT_NULL;
}

static const char *name_of(const struct place *p)
{
    return p->path[0] ? p->path : "request";
}

int place_wrong(const struct place *p, const char *expected, struct carat_error *err)
{
    char shown[JSON_SHOWN_MAX];
    if (p->value->kind == CARAT_STRING)
        return err_set(err, CARAT_EUSAGE, "%s: %s expected, \"%s\" found", name_of(p), expected,
                       json_shown(p->value, shown));
    return err_set(err, CARAT_EUSAGE, "%s: %s expected, %s found", name_of(p), expected,
                   json_kind_name(p->value));
}

int place_expect(const struct place *p, enum carat_value_kind kind, struct carat_error *err)
{
    struct carat_value of_kind = {.kind = kind};
    if (p->value->kind == kind) return CARAT_OK;
    return place_wrong(p, json_kind_name(&of_kind), err);
}

int place_expect_or_null(const struct place *p, enum carat_value_kind kind, struct carat_error *err)
{
    return place_is_null(p) ? CARAT_OK : place_expect(p, kind, err);
}

int place_expect_text(const struct place *p, size_t most, struct carat_error *err)
{
    TRY(place_expect(p, CARAT_STRING, err));
    size_t length = p->value->as.string.length;
    if (length > 0 && length <= most) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: 1 to %zu bytes expected, %zu found", name_of(p), most,
                   length);
}

int place_expect_name(const struct place *p, size_t most, struct carat_error *err)
{
    TRY(place_expect_text(p, most, err));
    for (size_t i = 0; i < p->value->as.string.length; i++) {
        unsigned char c = (unsigned char)p->value->as.string.data[i];
        if (c < ' ' || c == 0x7F)
            return err_set(err, CARAT_EUSAGE, "%s: a name without control characters expected",
                           name_of(p));
    }
    return CARAT_OK;
}

int place_expect_count(const struct place *p, size_t least, size_t most, struct carat_error *err)
{
    TRY(place_expect(p, CARAT_ARRAY, err));
    size_t count = p->value->as.array.count;
    if (count < least)
        return err_set(err, CARAT_EUSAGE, "%s: at least %zu expected, %zu found", name_of(p), least,
                       count);
    if (count <= most) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: at most %zu expected, %zu found", name_of(p), most,
                   count);
}

int place_read_whole(const struct place *p, int64_t low, int64_t high, int64_t *out,
                     struct carat_error *err)
{
    int64_t found = 0;
    TRY(json_whole(p->value, name_of(p), low, high, &found, err));
    if (out) *out = found;
    return CARAT_OK;
}

int place_expect_real(const struct place *p, double low, double high, struct carat_error *err)
{
    if (!json_is_number(p->value)) return place_wrong(p, "a number", err);
    double found = json_number(p->value);
    if (found >= low && found <= high) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: %g to %g expected, %g found", name_of(p), low, high,
                   found);
}

/* The recursion is bounded: readers take no value that is deeper than JSON_VALUE_DEPTH_MAX. */
static bool is_deeper(const struct carat_value *value, int most)
{
    if (most < 0) return true;
    for (size_t i = 0; value->kind == CARAT_ARRAY && i < value->as.array.count; i++)
        if (is_deeper(&value->as.array.items[i], most - 1)) return true;
    for (size_t i = 0; value->kind == CARAT_OBJECT && i < value->as.object.count; i++)
        if (is_deeper(&value->as.object.members[i].value, most - 1)) return true;
    return false;
}

int place_expect_depth(const struct place *p, int most, struct carat_error *err)
{
    if (!is_deeper(p->value, most)) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: nesting of at most %d expected", name_of(p), most);
}

int place_refuse(const struct place *p, const char *hint, struct carat_error *err)
{
    char shown[JSON_SHOWN_MAX];
    if (p->value->kind == CARAT_STRING)
        err_set(err, CARAT_EUNSUPPORTED, "%s: \"%s\" is not supported", name_of(p),
                json_shown(p->value, shown));
    else
        err_set(err, CARAT_EUNSUPPORTED, "%s: not supported", name_of(p));
    err_hint(err, "%s", hint);
    return CARAT_EUNSUPPORTED;
}
