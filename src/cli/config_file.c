#include "cli/config_file.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char blanks[] = " \t\r";

/* Cuts blanks off both ends, in place. */
static char *trimmed(char *text)
{
    text += strspn(text, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1])) n--;
    text[n] = '\0';
    return text;
}

/* Takes the double quotes off a value. False: there is only one of them. */
static bool unquote(char **value)
{
    size_t n = strlen(*value);
    if ((*value)[0] != '"') return true;
    if (n < 2 || (*value)[n - 1] != '"') return false;
    (*value)[n - 1] = '\0';
    ++*value;
    return true;
}

struct place {
    const char *path;
    int32_t line;
};

static int read_section(char *line, const char **section, struct place at, struct carat_error *err)
{
    size_t n = strlen(line);
    if (line[n - 1] != ']') {
        err_set(err, CARAT_EUSAGE, "%s:%d: a section without its ]", at.path, at.line);
        return CARAT_EUSAGE;
    }
    line[n - 1] = '\0';
    *section = trimmed(line + 1);
    if (**section) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s:%d: a section without a name", at.path, at.line);
    err_hint(err, "[default], or the name of a model");
    return CARAT_EUSAGE;
}

static int read_entry(char *line, struct config_entry *out, struct place at,
                      struct carat_error *err)
{
    char *equals = strchr(line, '=');
    if (!equals) {
        err_set(err, CARAT_EUSAGE, "%s:%d: key = value expected, \"%.40s\" found", at.path, at.line,
                line);
        err_hint(err, "%.40s = on switches an option without a value on", line);
        return CARAT_EUSAGE;
    }
    *equals = '\0';
    char *key = trimmed(line), *value = trimmed(equals + 1);
    if (!key[0])
        return err_set(err, CARAT_EUSAGE, "%s:%d: a value without a key", at.path, at.line);
    if (!unquote(&value))
        return err_set(err, CARAT_EUSAGE, "%s:%d: the value of %.64s lacks its closing quote",
                       at.path, at.line, key);
    out->key = key;
    out->value = value;
    out->line = at.line;
    return CARAT_OK;
}

/* Splits the text in place. */
static int read_lines(struct config_file *f, const char *path, struct carat_error *err)
{
    const char *section = "default";
    struct place at = {.path = path};
    for (char *next = f->text; next;) {
        char *line = next;
        at.line++;
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        if (strlen(line) > CONFIG_LINE_MAX)
            return err_set(err, CARAT_EUSAGE, "%s:%d: longer than %d bytes", path, at.line,
                           CONFIG_LINE_MAX);
        line = trimmed(line);
        if (!line[0] || line[0] == '#' || line[0] == ';') continue;
        if (line[0] == '[') {
            TRY(read_section(line, &section, at, err));
            continue;
        }
        if (f->n == CONFIG_ENTRIES_MAX)
            return err_set(err, CARAT_EUSAGE, "%s:%d: more than %d keys", path, at.line,
                           CONFIG_ENTRIES_MAX);
        struct config_entry *entry = &f->entries[f->n];
        TRY(read_entry(line, entry, at, err));
        entry->section = section;
        f->n++;
    }
    return CARAT_OK;
}

static int32_t line_of(const char *bytes, size_t at)
{
    int32_t line = 1;
    for (size_t i = 0; i < at; i++) line += bytes[i] == '\n';
    return line;
}

int config_file_read(struct config_file *out, const char *path, const char *bytes, size_t length,
                     struct carat_error *err)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* that some editors write in front */
    *out = (struct config_file){0};
    if (length > CONFIG_BYTES_MAX)
        return err_set(err, CARAT_EUSAGE, "%s: longer than %d bytes", path, CONFIG_BYTES_MAX);
    if (length >= sizeof mark - 1 && memcmp(bytes, mark, sizeof mark - 1) == 0) {
        bytes += sizeof mark - 1;
        length -= sizeof mark - 1;
    }
    size_t valid = utf8_valid_prefix(bytes, length);
    const char *nul = length ? memchr(bytes, '\0', valid) : NULL;
    if (nul)
        return err_set(err, CARAT_EUSAGE, "%s:%d: a NUL byte", path,
                       line_of(bytes, (size_t)(nul - bytes)));
    if (valid < length)
        return err_set(err, CARAT_EUSAGE, "%s:%d: no valid UTF-8", path, line_of(bytes, valid));
    out->text = mem_copy_text(bytes, length);
    out->entries = mem_alloc(CONFIG_ENTRIES_MAX, sizeof *out->entries);
    int status =
        out->text && out->entries ? read_lines(out, path, err) : err_no_memory(err, path, length);
    if (status != CARAT_OK) config_file_deinit(out);
    return status;
}

void config_file_deinit(struct config_file *f)
{
    mem_free(f->text);
    mem_free(f->entries);
    *f = (struct config_file){0};
}
