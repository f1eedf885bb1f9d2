#include "hub/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub/record.h"
#include "hub/sha256.h"

struct checking {
    const struct hub_watch *watch;
    struct hub_progress progress;
};

static bool move(void *user, uint64_t done)
{
    struct checking *c = user;
    c->progress.done = done;
    watch_move(c->watch, &c->progress);
    return watch_goes_on(c->watch);
}

int check_sum(const char *path, const struct hub_watch *watch, char sum[HUB_SHA256_HEX + 1],
              struct carat_error *err)
{
    struct sha256 *state = NULL;
    struct stat facts;
    const char *slash = strrchr(path, '/');
    struct checking c = {watch, {.what = "checking", .file = slash ? slash + 1 : path}};
    TRY(sha256_open(&state, err));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int status = CARAT_OK;
    if (fd < 0 || fstat(fd, &facts) != 0) {
        status = err_set(err, CARAT_EIO, "%.300s: cannot be read: %s", path, strerror(errno));
    } else {
        c.progress.size = (uint64_t)facts.st_size;
        status = sha256_add_file(state, fd, c.progress.size, path, move, &c, err);
    }
    if (status == CARAT_OK) sha256_end(state, sum);
    sha256_close(state);
    if (fd >= 0) close(fd);
    return status;
}

/* Hugging Face's cache names blobs by their sha256, ollama by "sha256-" and it. */
static void sum_of_name(const char *name, char sum[HUB_SHA256_HEX + 1])
{
    if (strncmp(name, "sha256-", 7) == 0) name += 7;
    bool is_sum =
        strlen(name) == HUB_SHA256_HEX && strspn(name, "0123456789abcdef") == HUB_SHA256_HEX;
    if (is_sum) memcpy(sum, name, HUB_SHA256_HEX + 1);
}

void check_expected(const char *path, char sum[HUB_SHA256_HEX + 1])
{
    struct record record;
    char real[PATH_MAX];
    sum[0] = '\0';
    if (record_read(path, &record)) memcpy(sum, record.sha256, sizeof record.sha256);
    const char *slash = !sum[0] && realpath(path, real) ? strrchr(real, '/') : NULL;
    if (slash) sum_of_name(slash + 1, sum);
}
