#include "server/pairs.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/hex.h"

static bool decode(const char *at, const char *end, char *out, size_t size)
{
    size_t n = 0;
    while (at < end) {
        unsigned char c = (unsigned char)*at++;
        if (c == '%') {
            if (end - at < 2 || hex_value(at[0]) < 0 || hex_value(at[1]) < 0) return false;
            c = (unsigned char)(hex_value(at[0]) * 16 + hex_value(at[1]));
            at += 2;
        }
        if (c < 0x20 || c == 0x7F || n + 1 >= size) return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return true;
}

static void trim(const char **at, const char **end)
{
    while (*at < *end && (**at == ' ' || **at == '\t')) (*at)++;
    while (*end > *at && ((*end)[-1] == ' ' || (*end)[-1] == '\t')) (*end)--;
}

int pairs_next(const char **at, struct pair *out)
{
    static const char token[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "!#$%&'*+-.^_`|~/";
    *at += strspn(*at, " \t,");
    if (**at == '\0') return 0;
    const char *end = *at + strcspn(*at, ","), *name = *at;
    const char *equals = memchr(name, '=', (size_t)(end - name)), *name_end = equals;
    if (!equals) return -1;
    *at = end;
    const char *value = equals + 1;
    trim(&name, &name_end);
    trim(&value, &end);
    if (name == name_end || strspn(name, token) < (size_t)(name_end - name)) return -1;
    const bool is_good = decode(name, name_end, out->name, sizeof out->name) &&
                         decode(value, end, out->value, sizeof out->value);
    return is_good ? 1 : -1;
}
