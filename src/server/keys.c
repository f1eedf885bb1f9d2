#include "server/keys.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

#define BLANKS " \t\r\n"

enum { FILE_BYTES_MAX = 1 << 20, KEYS_MAX = 10000 };

static struct key_digest digest(const struct keys *k, const char *key, size_t length)
{
    struct key_digest d;
    for (int i = 0; i < KEY_HASHES; i++) d.part[i] = hash_bytes(k->secrets[i], key, length);
    return d;
}

static int add(struct keys *k, const char *key, size_t length, struct carat_error *err)
{
    if (k->n >= KEYS_MAX) return err_set(err, CARAT_EUSAGE, "more than %d keys", (int)KEYS_MAX);
    struct key_digest *grown = mem_resize(k->digests, k->n + 1, sizeof *grown);
    if (!grown) return err_no_memory(err, "keys", (k->n + 1) * sizeof *grown);
    k->digests = grown;
    grown[k->n++] = digest(k, key, length);
    return CARAT_OK;
}

/* Nothing if there are only blanks. */
static int add_trimmed(struct keys *k, const char *text, size_t length, struct carat_error *err)
{
    while (length > 0 && strchr(BLANKS, text[length - 1])) length--;
    while (length > 0 && strchr(BLANKS, *text)) text++, length--;
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] >= ' ' && text[i] != 0x7f) continue;
        err_set(err, CARAT_EUSAGE, "a key has a control character, which no request can send");
        err_hint(err, "write it again, without spaces and line breaks");
        return CARAT_EUSAGE;
    }
    return length > 0 ? add(k, text, length, err) : CARAT_OK;
}

static int add_lines(struct keys *k, const char *text, struct carat_error *err)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* that some editors write in front */
    if (strncmp(text, mark, sizeof mark - 1) == 0) text += sizeof mark - 1;
    for (int number = 1; *text; number++) {
        const size_t line = strcspn(text, "\n");
        if (text[strspn(text, BLANKS)] != '#') {
            const int status = add_trimmed(k, text, line, err);
            if (status != CARAT_OK) return err_within(err, "keys: %s, line %d", k->file, number);
        }
        text += line;
        text += *text == '\n';
    }
    return CARAT_OK;
}

static int read_file(const char *path, struct buf *out, struct carat_error *err)
{
    switch (file_read_bounded(path, 0, FILE_BYTES_MAX, out)) {
    case FILE_UNOPENED:
        return err_set(err, CARAT_EIO, "keys: cannot read %s: %s", path, strerror(errno));
    case FILE_BROKEN: return err_set(err, CARAT_EIO, "keys: cannot read %s", path);
    case FILE_NO_MEMORY: return err_no_memory(err, "keys", out->length);
    case FILE_LONGER:
        return err_set(err, CARAT_EUSAGE, "keys: %s has more than %d bytes", path,
                       (int)FILE_BYTES_MAX);
    case FILE_WHOLE: break;
    }
    if (out->length > 0 && memchr(out->data, '\0', out->length))
        return err_set(err, CARAT_EUSAGE, "keys: %s is not a text file", path);
    return CARAT_OK;
}

int keys_reload(struct keys *k, struct carat_error *err)
{
    if (!k->file) return CARAT_OK;
    struct buf text = {0};
    struct keys fresh = *k;
    fresh.digests = mem_alloc(k->n_given + 1, sizeof *fresh.digests);
    fresh.n = k->n_given;
    int status = fresh.digests ? read_file(k->file, &text, err)
                               : err_no_memory(err, "keys", sizeof *fresh.digests);
    if (status == CARAT_OK) {
        if (k->n_given > 0) memcpy(fresh.digests, k->digests, k->n_given * sizeof *fresh.digests);
        status = add_lines(&fresh, buf_text(&text), err);
    }
    if (status == CARAT_OK && fresh.n == k->n_given) {
        /* An empty file must not open the server to everybody. */
        status = err_set(err, CARAT_EUSAGE, "keys: %s has no key", k->file);
        err_hint(err, "write one key a line, at least one");
    }
    mem_free(status == CARAT_OK ? k->digests : fresh.digests);
    if (status == CARAT_OK) *k = fresh;
    if (text.data) explicit_bzero(text.data, text.length);
    buf_deinit(&text);
    return status;
}

int keys_open(struct keys *k, const char *const *given, size_t n, const char *file,
              struct carat_error *err)
{
    *k = (struct keys){0};
    for (int i = 0; i < KEY_HASHES; i++) k->secrets[i] = hash_key_random();
    int status = CARAT_OK;
    for (size_t i = 0; i < n && status == CARAT_OK; i++) {
        status = add_trimmed(k, given[i], strlen(given[i]), err);
        if (status == CARAT_OK && k->n == i) status = err_set(err, CARAT_EUSAGE, "a key is empty");
        if (status != CARAT_OK) err_within(err, "keys");
    }
    k->n_given = k->n;
    if (status == CARAT_OK && file) {
        k->file = mem_copy_text(file, strlen(file));
        status = k->file ? keys_reload(k, err) : err_no_memory(err, "keys", strlen(file));
    }
    if (status != CARAT_OK) keys_close(k);
    return status;
}

void keys_close(struct keys *k)
{
    mem_free(k->digests);
    mem_free(k->file);
    *k = (struct keys){0};
}

bool keys_find(const struct keys *k, const char *key, size_t length, uint64_t *id)
{
    const struct key_digest d = digest(k, key, length);
    uint64_t is_found = 0;
    for (size_t i = 0; i < k->n; i++) { /* all of them, so that the time says nothing */
        uint64_t differs = 0;
        for (int p = 0; p < KEY_HASHES; p++) differs |= d.part[p] ^ k->digests[i].part[p];
        is_found |= differs == 0;
    }
    *id = is_found ? d.part[0] | 1 : 0;
    return is_found != 0;
}
