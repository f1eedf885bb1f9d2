#include "cli/prompt_cache.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/terminal.h"

static const char *path_of(const struct options *o)
{
    return opt_is_set(o, OPT_PROMPT_CACHE) ? opt_text(o, OPT_PROMPT_CACHE) : NULL;
}

int prompt_cache_check(const struct options *o, struct carat_error *err)
{
    const char *path = path_of(o), *slash = path ? strrchr(path, '/') : NULL;
    if (!path) {
        if (!opt_is_set(o, OPT_PROMPT_CACHE_RO)) return CARAT_OK;
        return err_set(err, CARAT_EUSAGE, "--prompt-cache-ro: goes with --prompt-cache");
    }
    if (!path[0]) return err_set(err, CARAT_EUSAGE, "--prompt-cache: the name of a file expected");
    if (opt_is_set(o, OPT_NO_PREFIX_CACHE))
        return err_set(err, CARAT_EUSAGE, "--prompt-cache: contradicts --no-prefix-cache");
    if (opt_is_set(o, OPT_PROMPT_CACHE_RO)) return CARAT_OK;
    struct buf folder = {0};
    buf_printf(&folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int status = CARAT_OK;
    if (folder.failed)
        status = err_no_memory(err, path, strlen(path));
    else if (access(buf_text(&folder), W_OK | X_OK) != 0)
        status = err_set(err, CARAT_EIO, "--prompt-cache: no file can be made in %.300s: %s",
                         buf_text(&folder), strerror(errno));
    buf_deinit(&folder);
    return status;
}

int prompt_cache_load(const struct options *o, carat_engine *engine, struct carat_error *err)
{
    struct carat_prefixes found;
    struct carat_error why = {0};
    const char *path = path_of(o);
    if (!path) return CARAT_OK;
    int status = carat_prefixes_load(engine, path, &found, &why);
    if (status == CARAT_ECHECKSUM || status == CARAT_EUNSUPPORTED) {
        note("%s; the file is not used", why.message);
        return CARAT_OK;
    }
    if (status == CARAT_OK && found.bytes > 0)
        note("%s: %lld tokens of earlier prompts", path, (long long)found.tokens);
    if (status != CARAT_OK && err) *err = why;
    return status;
}

int prompt_cache_save(const struct options *o, carat_engine *engine, struct carat_error *err)
{
    const char *path = path_of(o);
    if (!path || opt_is_set(o, OPT_PROMPT_CACHE_RO)) return CARAT_OK;
    return carat_prefixes_save(engine, path, (uint64_t)opt_int(o, OPT_PROMPT_CACHE_MAX), NULL, NULL,
                               err);
}
