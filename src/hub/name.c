#include "hub/name.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

/* ---- Parts of names --------------------------------------------------------------------- */

bool hub_path_is_safe(const char *path, size_t length)
{
    if (length == 0 || length >= HUB_PATH_MAX || path[0] == '/') return false;
    if (utf8_valid_prefix(path, length) != length) return false;
    for (size_t begin = 0; begin <= length;) {
        const char *part = path + begin, *slash = memchr(part, '/', length - begin);
        size_t n = slash ? (size_t)(slash - part) : length - begin;
        bool is_dots = (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.');
        if (n == 0 || n > 235 || is_dots) return false;
        begin += n + 1;
    }
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)path[i] < ' ' || path[i] == 0x7F || path[i] == '\\') return false;
    return true;
}

/* Letters, digits, "._-" and `more`; not a dot first. */
static bool is_word(const char *text, size_t length, const char *more)
{
    if (length == 0 || length >= HUB_WORD_MAX || text[0] == '.') return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_letter && (!c || !strchr("._-", c)) && (!c || !strchr(more, c))) return false;
    }
    return true;
}

static bool set_word(char out[HUB_WORD_MAX], const char *text, size_t length)
{
    if (!is_word(text, length, "")) return false;
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

static bool ends_with_gguf(const char *text, size_t length)
{
    return length > 5 && strncasecmp(text + length - 5, ".gguf", 5) == 0;
}

static bool set_file(char out[HUB_PATH_MAX], const char *text, size_t length)
{
    if (!hub_path_is_safe(text, length) || !ends_with_gguf(text, length)) return false;
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

int hub_name_set_revision(struct hub_name *name, const char *revision, struct carat_error *err)
{
    size_t n = strlen(revision);
    if (!is_word(revision, n, "/") || !hub_path_is_safe(revision, n))
        return err_set(err, CARAT_EUSAGE,
                       "--revision: \"%.100s\" is no branch, tag or commit of a repository",
                       revision);
    memcpy(name->revision, revision, n + 1);
    return CARAT_OK;
}

/* ---- Whole names ------------------------------------------------------------------------ */

static int wrong_name(const char *text, const char *expected, struct carat_error *err)
{
    struct buf shown = {0};
    url_add_shown(&shown, text);
    err_set(err, CARAT_EUSAGE, "%.200s: a name such as %s expected", buf_text(&shown), expected);
    buf_deinit(&shown);
    return CARAT_EUSAGE;
}

/* USER/REPO[:QUANT][/file.gguf] */
static bool read_hf(const char *at, struct hub_name *out)
{
    out->kind = HUB_HF;
    size_t n = strcspn(at, "/");
    if (at[n] != '/' || !set_word(out->owner, at, n)) return false;
    at += n + 1;
    n = strcspn(at, ":/");
    if (!set_word(out->repository, at, n)) return false;
    at += n;
    if (*at == ':') {
        n = strcspn(++at, "/");
        if (!set_word(out->tag, at, n)) return false;
        at += n;
    }
    return *at == '\0' || set_file(out->file, at + 1, strlen(at + 1));
}

/* A page of Hugging Face: USER/REPO, or a file: USER/REPO/{resolve,blob}/REVISION/FILE */
static bool read_hf_page(const char *path, struct hub_name *out)
{
    static const char *const kinds[] = {"/resolve/", "/blob/", "/tree/"};
    char text[URL_MAX];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(path, "?#"), path);
    size_t length = strlen(text);
    if (length && text[length - 1] == '/') text[length - 1] = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char *kind = strstr(text, kinds[i]);
        if (!kind) continue;
        *kind = '\0';
        const char *revision = kind + strlen(kinds[i]);
        size_t n = strcspn(revision, "/");
        if (!read_hf(text, out) || !set_word(out->revision, revision, n)) return false;
        if (!revision[n]) return true;
        return set_file(out->file, revision + n + 1, strlen(revision + n + 1));
    }
    return read_hf(text, out);
}

/* [USER/]NAME[:TAG] */
static bool read_ollama(const char *at, struct hub_name *out)
{
    out->kind = HUB_OLLAMA;
    memcpy(out->owner, "library", sizeof "library");
    memcpy(out->tag, "latest", sizeof "latest");
    size_t n = strcspn(at, "/:");
    if (at[n] == '/') {
        if (!set_word(out->owner, at, n)) return false;
        at += n + 1;
        n = strcspn(at, "/:");
    }
    if (!set_word(out->repository, at, n)) return false;
    at += n;
    return *at == '\0' || (*at == ':' && set_word(out->tag, at + 1, strlen(at + 1)));
}

static int read_address(const char *text, struct hub_name *out, struct carat_error *err)
{
    struct url url;
    if (!url_read(text, &url)) return wrong_name(text, "https://HOST/FILE.gguf", err);
    bool is_hf = strcmp(url.host, "huggingface.co") == 0 || strcmp(url.host, "hf.co") == 0;
    if (is_hf && url.path[0] == '/') {
        if (read_hf_page(url.path + 1, out)) return CARAT_OK;
        return wrong_name(text, "https://huggingface.co/USER/REPO or one of its .gguf files", err);
    }
    size_t n = strcspn(url.path, "?#");
    if (n < 2 || !set_file(out->file, url.path + 1, n - 1))
        return wrong_name(text, "https://HOST/FILE.gguf", err);
    out->kind = HUB_URL;
    snprintf(out->url, sizeof out->url, "%s", text);
    return CARAT_OK;
}

int hub_name_read(const char *text, struct hub_name *out, struct carat_error *err)
{
    static const char *const hubs[] = {"hf:", "hf.co/", "huggingface.co/", "ollama:hf.co/"};
    *out = (struct hub_name){0};
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs; i++) {
        size_t n = strlen(hubs[i]);
        if (strncmp(text, hubs[i], n) != 0) continue;
        return read_hf(text + n, out) ? CARAT_OK : wrong_name(text, "hf:USER/REPO:Q4_K_M", err);
    }
    if (strncmp(text, "ollama:", 7) == 0)
        return read_ollama(text + 7, out) ? CARAT_OK : wrong_name(text, "ollama:NAME:TAG", err);
    bool is_address = strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0;
    return is_address ? read_address(text, out, err) : CARAT_OK;
}

void hub_name_add(const struct hub_name *name, struct buf *out)
{
    bool is_library = strcmp(name->owner, "library") == 0;
    switch (name->kind) {
    case HUB_NONE: break;
    case HUB_HF:
        buf_printf(out, "hf:%s/%s", name->owner, name->repository);
        if (name->tag[0]) buf_printf(out, ":%s", name->tag);
        if (name->file[0]) buf_printf(out, "/%s", name->file);
        break;
    case HUB_OLLAMA:
        buf_printf(out, "ollama:%s%s%s:%s", is_library ? "" : name->owner, is_library ? "" : "/",
                   name->repository, name->tag);
        break;
    case HUB_URL: url_add_shown(out, name->url); break;
    }
}
