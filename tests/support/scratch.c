#include "support/scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what, const char *path)
{
    fprintf(stderr, "%s: ", what);
    perror(path);
    exit(1);
}

void scratch_open(struct scratch *s)
{
    const char *base = getenv("TMPDIR");
    snprintf(s->path, sizeof s->path, "%s/carat-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(s->path)) die("temporary folder", s->path);
}

static int remove_entry(const char *path, const struct stat *facts, int kind, struct FTW *where)
{
    (void)facts;
    (void)kind;
    (void)where;
    return remove(path);
}

void scratch_close(struct scratch *s)
{
    nftw(s->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_file(const struct scratch *s, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", s->path, name);
    return out;
}

void scratch_write(const struct scratch *s, const char *name, const void *data, size_t n)
{
    char path[512];
    FILE *file = fopen(scratch_file(s, name, path), "wb");
    if (!file) die("temporary file", path);
    if (fwrite(data, 1, n, file) != n || fclose(file) != 0) die("temporary file", path);
}

void scratch_put(const struct scratch *s, const char *path, const char *text)
{
    char folder[512];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%s/%.*s", s->path, (int)(slash - path), path);
        mkdir(folder, 0755);
    }
    scratch_write(s, path, text, strlen(text));
}
