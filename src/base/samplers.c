#include "base/samplers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

enum { OTHERS_MAX = 4, SHOWN_MAX = 40 };

static const struct sampler_row {
    char letter;
    const char *name, *others[OTHERS_MAX];
} rows[] = {
    {'e', "penalties", {NULL}},
    {'d', "dry", {NULL}},
    {'s', "top_n_sigma", {NULL}},
    {'k', "top_k", {NULL}},
    {'y', "typ_p", {"typical_p", "typical", "typ"}},
    {'t', "temperature", {"temp"}},
    {'p', "top_p", {"nucleus"}},
    {'m', "min_p", {NULL}},
    {'x', "xtc", {NULL}},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* llama.cpp's order ends with it, and it does nothing unless it is switched on. */
static const struct sampler_row absent = {'a', "adaptive_p", {NULL}};

static const char none[] = "-";
static const char all_names[] = "there are penalties, dry, top_n_sigma, top_k, typ_p, temperature, "
                                "top_p, min_p and xtc";
static const char all_letters[] = "there are e (penalties), d (dry), s (top_n_sigma), k (top_k), "
                                  "y (typ_p), t (temperature), p (top_p), m (min_p) and x (xtc)";

static const struct sampler_row *find(char letter)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].letter == letter) return &rows[i];
    return NULL;
}

const char *sampler_name(char letter)
{
    const struct sampler_row *row = find(letter);
    return row ? row->name : NULL;
}

/* A hyphen in the text is an underscore. */
static bool is_text(const char *text, size_t length, const char *name)
{
    for (size_t i = 0; i < length; i++)
        if ((text[i] == '-' ? '_' : text[i]) != name[i] || !name[i]) return false;
    return name[length] == '\0';
}

static bool is_named(const struct sampler_row *row, const char *text, size_t length)
{
    bool is_it = is_text(text, length, row->name);
    for (size_t i = 0; i < OTHERS_MAX && row->others[i]; i++)
        is_it |= is_text(text, length, row->others[i]);
    return is_it;
}

static int append(char *letters, const struct sampler_row *row, const char *where,
                  struct carat_error *err)
{
    if (strchr(letters, row->letter)) {
        err_set(err, CARAT_EUSAGE, "%s: %s is there twice", where, row->name);
        err_hint(err, "each sampler runs once at most");
        return CARAT_EUSAGE;
    }
    size_t n = strcmp(letters, none) == 0 ? 0 : strlen(letters);
    letters[n] = row->letter;
    letters[n + 1] = '\0';
    return CARAT_OK;
}

/* Bytes of a text's first `most` characters, as far as they are fit for an error. */
static int shown_bytes(const char *text, size_t length, int most)
{
    size_t n = 0;
    for (int i = 0; i < most && n < length; i++) {
        uint32_t c;
        int bytes = utf8_read(text + n, length - n, &c);
        if (bytes == 0 || utf8_is_unprintable(c)) break;
        n += (size_t)bytes;
    }
    return (int)n;
}

int samplers_add(char letters[SAMPLERS_SIZE], const char *name, size_t length, const char *where,
                 struct carat_error *err)
{
    for (size_t i = 0; i < ROWS; i++)
        if (is_named(&rows[i], name, length)) return append(letters, &rows[i], where, err);
    if (is_named(&absent, name, length)) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s: no sampler is called \"%.*s\"", where,
            shown_bytes(name, length, SHOWN_MAX), name);
    err_hint(err, "%s", all_names);
    return CARAT_EUSAGE;
}

int samplers_read_names(char out[SAMPLERS_SIZE], const char *text, size_t length, const char *where,
                        struct carat_error *err)
{
    memcpy(out, none, sizeof none);
    if (is_text(text, length, "none")) return CARAT_OK;
    for (size_t begin = 0; begin < length;) {
        const char *end = memchr(text + begin, ';', length - begin);
        size_t n = end ? (size_t)(end - text) - begin : length - begin;
        TRY(samplers_add(out, text + begin, n, where, err));
        begin += n + 1;
    }
    return CARAT_OK;
}

int samplers_read_letters(char out[SAMPLERS_SIZE], const char *text, size_t length,
                          const char *where, struct carat_error *err)
{
    memcpy(out, none, sizeof none);
    for (size_t i = 0; i < length; i++) {
        const struct sampler_row *row = find(text[i]);
        if (!row && text[i] == absent.letter) continue;
        if (row) {
            TRY(append(out, row, where, err));
            continue;
        }
        err_set(err, CARAT_EUSAGE, "%s: no sampler has the letter \"%.*s\"", where,
                shown_bytes(text + i, length - i, 1), text + i);
        err_hint(err, "%s", all_letters);
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

int samplers_check(const char letters[SAMPLERS_SIZE], const char *where, struct carat_error *err)
{
    char seen[SAMPLERS_SIZE];
    size_t length = strnlen(letters, SAMPLERS_SIZE);
    if (length == SAMPLERS_SIZE)
        return err_set(err, CARAT_EUSAGE, "%s: a text of at most %d letters expected", where,
                       SAMPLERS_SIZE - 1);
    if (strcmp(letters, none) == 0) return CARAT_OK;
    return samplers_read_letters(seen, letters, length, where, err);
}

/* Version 1 estimates what version 2 computes. */
int mirostat_check(int64_t version, const char *where, struct carat_error *err)
{
    if (version == 0 || version == 2) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s: 0 (off) or 2 expected, %" PRId64 " found", where, version);
    if (version == 1) err_hint(err, "version 2 aims at the same, and is here");
    return CARAT_EUSAGE;
}
