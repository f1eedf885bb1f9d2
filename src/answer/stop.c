#include "answer/stop.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"

static int copy(struct stop_string *s, const char *text, size_t number, struct carat_error *err)
{
    size_t length = strlen(text);
    if (length == 0 || length > CARAT_STOP_BYTES_MAX)
        return err_set(err, CARAT_EUSAGE, "stop string %zu: 1 to %d bytes expected, %zu found",
                       number, CARAT_STOP_BYTES_MAX, length);
    if (utf8_valid_prefix(text, length) < length)
        return err_set(err, CARAT_EUSAGE, "stop string %zu: not valid UTF-8", number);
    *s = (struct stop_string){.text = mem_copy_text(text, length), .length = length};
    return s->text ? CARAT_OK : err_no_memory(err, "stop strings", length);
}

int stop_strings_open(struct stop_strings *s, const char *const *texts, size_t n,
                      struct carat_error *err)
{
    *s = (struct stop_strings){0};
    if (n > CARAT_STOPS_MAX)
        return err_set(err, CARAT_EUSAGE, "stop strings: at most %d expected, %zu found",
                       CARAT_STOPS_MAX, n);
    if (n == 0) return CARAT_OK;
    s->all = mem_alloc(n, sizeof *s->all);
    if (!s->all) return err_no_memory(err, "stop strings", n * sizeof *s->all);
    int status = CARAT_OK;
    while (status == CARAT_OK && s->n < n) {
        status = copy(&s->all[s->n], texts[s->n], s->n + 1, err);
        if (status == CARAT_OK) s->n++;
    }
    if (status != CARAT_OK) stop_strings_close(s);
    return status;
}

void stop_strings_close(struct stop_strings *s)
{
    for (size_t i = 0; i < s->n; i++) mem_free(s->all[i].text);
    mem_free(s->all);
    *s = (struct stop_strings){0};
}

/* Bytes at the end of the text that begin a stop string. */
static size_t begun(const struct stop_strings *s, const char *text, size_t length)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = s->all[i].length - 1;
        if (n > length) n = length;
        while (n > most && memcmp(text + length - n, s->all[i].text, n) != 0) n--;
        if (n > most) most = n;
    }
    return most;
}

const char *stop_strings_find(const struct stop_strings *s, const char *text, size_t length,
                              size_t *certain)
{
    const char *found = NULL;
    size_t begin = 0, end = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *at = memmem(text, length, s->all[i].text, s->all[i].length);
        if (!at) continue;
        size_t from = (size_t)(at - text), upto = from + s->all[i].length;
        if (found && (upto > end || (upto == end && from > begin))) continue;
        found = s->all[i].text, begin = from, end = upto;
    }
    *certain = found ? begin : length - begun(s, text, length);
    return found;
}
