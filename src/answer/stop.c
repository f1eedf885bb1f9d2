#include "answer/stop.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"

static bool is_utf8(const char *text, size_t length)
{
    uint32_t code_point;
    for (size_t i = 0; i < length;) {
        int n = utf8_read(text + i, length - i, &code_point);
        if (n == 0) return false;
        i += (size_t)n;
    }
    return true;
}

int stop_strings_open(struct stop_strings *s, const char *const *texts, size_t n,
                      struct carat_error *err)
{
    *s = (struct stop_strings){0};
    if (n > CARAT_STOPS_MAX)
        return err_set(err, CARAT_EUSAGE, "stop strings: at most %d expected, %zu found",
                       CARAT_STOPS_MAX, n);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(texts[i]);
        int status = CARAT_OK;
        if (length == 0 || length > CARAT_STOP_BYTES_MAX)
            status =
                err_set(err, CARAT_EUSAGE, "stop string %zu: 1 to %d bytes expected, %zu found",
                        i + 1, CARAT_STOP_BYTES_MAX, length);
        else if (!is_utf8(texts[i], length))
            status = err_set(err, CARAT_EUSAGE, "stop string %zu: not valid UTF-8", i + 1);
        else if (!(s->texts[i] = mem_copy_text(texts[i], length)))
            status = err_no_memory(err, "stop strings", length);
        if (status) {
            stop_strings_close(s);
            return status;
        }
        s->lengths[i] = length;
        s->n = i + 1;
    }
    return CARAT_OK;
}

void stop_strings_close(struct stop_strings *s)
{
    for (size_t i = 0; i < s->n; i++) mem_free(s->texts[i]);
    s->n = 0;
}

/* Bytes at the end of the text that begin a stop string. */
static size_t begun(const struct stop_strings *s, const char *text, size_t length)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = s->lengths[i] - 1;
        if (n > length) n = length;
        while (n > most && memcmp(text + length - n, s->texts[i], n) != 0) n--;
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
        const char *at = memmem(text, length, s->texts[i], s->lengths[i]);
        if (!at) continue;
        size_t from = (size_t)(at - text), upto = from + s->lengths[i];
        if (found && (upto > end || (upto == end && from > begin))) continue;
        found = s->texts[i], begin = from, end = upto;
    }
    *certain = found ? begin : length - begun(s, text, length);
    return found;
}
