#include "cli/completions.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "cli/terminal.h"

void completions_deinit(struct completions *c)
{
    for (size_t i = 0; i < c->n; i++) buf_deinit(&c->words[i]);
    c->n = 0;
}

void completions_add(struct completions *c, const char *typed, size_t length, const char *word)
{
    if (strncmp(word, typed, length) != 0 || c->n == COMPLETIONS_MAX) return;
    struct buf *b = &c->words[c->n++];
    *b = (struct buf){0};
    buf_add_text(b, word);
}

static bool can_be_shown(const char *name)
{
    struct buf shown = {0};
    add_escaped(&shown, name, strlen(name), false);
    bool is_same = strcmp(buf_text(&shown), name) == 0;
    buf_deinit(&shown);
    return is_same;
}

static int compare(const void *a, const void *b)
{
    return strcmp(buf_text(a), buf_text(b));
}

void completions_add_files(struct completions *c, const char *typed, size_t length)
{
    struct buf folder = {0}, path = {0};
    const char *slash = length ? memrchr(typed, '/', length) : NULL;
    size_t n_folder = slash ? (size_t)(slash + 1 - typed) : 0;
    bool wants_hidden = n_folder < length && typed[n_folder] == '.';
    buf_add(&folder, typed, n_folder);
    DIR *d = opendir(n_folder ? buf_text(&folder) : ".");
    for (struct dirent *entry; d && (entry = readdir(d));) {
        const char *name = entry->d_name;
        bool is_dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (is_dots || (name[0] == '.' && !wants_hidden) || !can_be_shown(name)) continue;
        struct stat facts;
        buf_clear(&path);
        buf_printf(&path, "%s%s", buf_text(&folder), name);
        bool is_folder = stat(buf_text(&path), &facts) == 0 && S_ISDIR(facts.st_mode);
        if (is_folder) buf_add_char(&path, '/');
        completions_add(c, typed, length, buf_text(&path));
    }
    if (d) closedir(d);
    qsort(c->words, c->n, sizeof *c->words, compare);
    buf_deinit(&folder);
    buf_deinit(&path);
}

size_t completions_common(const struct completions *c)
{
    size_t common = c->n ? c->words[0].length : 0;
    for (size_t i = 1; i < c->n; i++) {
        size_t n = 0;
        const char *a = buf_text(&c->words[0]), *b = buf_text(&c->words[i]);
        while (n < common && a[n] == b[n]) n++; /* both end with a NUL */
        common = n;
    }
    return common - (c->n ? utf8_incomplete_tail(buf_text(&c->words[0]), common) : 0);
}
