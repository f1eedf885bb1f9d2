/* Names of models as people type them, and what registries answer: lists of files, commits,
 * manifests. The first byte says which. Whatever comes out is safe as a path below a folder.
 *
 * Subject: src/hub/answers.c 100
 * Subject: src/hub/choose.c 100
 * Subject: src/hub/files.c 100
 * Subject: src/hub/name.c 100
 * Subject: src/hub/url.c 100 */
#include <string.h>

#include "base/assert.h"
#include "fuzz/source.h"
#include "hub/answers.h"
#include "hub/choose.h"
#include "hub/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path)
{
    carat_assert(path[0] && path[0] != '/' && strlen(path) < HUB_PATH_MAX);
    for (const char *at = path; at;) {
        size_t n = strcspn(at, "/");
        carat_assert(n > 0 && !(n == 2 && at[0] == '.' && at[1] == '.'));
        carat_assert(!(n == 1 && at[0] == '.'));
        at = at[n] ? at + n + 1 : NULL;
    }
    for (; *path; path++) carat_assert((unsigned char)*path >= ' ');
}

/* The first and the last file of a model have names that are safe, too. */
static void check_parts(const char *path)
{
    struct buf name = {0};
    const int n = hub_parts(path), ends[] = {0, n - 1};
    carat_assert(n >= 1);
    for (int i = 0; i < 2; i++) {
        buf_clear(&name);
        hub_add_part(path, ends[i], &name);
        carat_assert(strlen(buf_text(&name)) == strlen(path));
        check_path(buf_text(&name));
    }
    buf_deinit(&name);
}

static void check_files(const struct hub_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        const struct hub_file *file = &files->at[i];
        char tag[HUB_TAG_MAX];
        check_path(file->path);
        check_parts(file->path);
        size_t n = strlen(file->sha256);
        carat_assert(n == 0 || n == HUB_SHA256_HEX);
        carat_assert(strspn(file->sha256, "0123456789abcdef") == n);
        carat_assert(file->size > 0);
        carat_assert(strlen(hub_tag_of_path(file->path, tag)) < HUB_TAG_MAX);
        if (hub_tag_is_own(files, i, strcspn(file->path, "/"))) carat_assert(tag[0]);
    }
}

static bool is_expected(int status, const struct carat_error *err)
{
    return status == CARAT_OK || (status == CARAT_ENETWORK && err->message[0]);
}

/* What is chosen by the tag of a file that can be chosen is that file, or it is not alone. */
static void choose(struct hub_files *files)
{
    char tag[HUB_TAG_MAX] = "";
    struct carat_error err = {0};
    if (files->n) hub_tag_of_path(files->at[files->n / 2].path, tag);
    size_t n = files->n;
    uint64_t bytes = hub_files_bytes(files);
    int status = hub_choose(files, tag, "", &err);
    carat_assert(status == CARAT_OK || (status == CARAT_EUSAGE && err.message[0]));
    carat_assert(status != CARAT_OK || files->n > 0);
    carat_assert(files->n <= n && hub_files_bytes(files) <= bytes);
    check_files(files);
    for (size_t i = 0; status != CARAT_OK && i < files->n; i++)
        carat_assert(hub_is_model(files->at[i].path) || hub_is_drafter(files->at[i].path));
    if (files->n == 0) return;
    char file[HUB_PATH_MAX];
    memcpy(file, files->at[0].path, strlen(files->at[0].path) + 1);
    hub_choose(files, "", file, NULL);
    check_files(files);
}

static void choose_drafter(struct hub_files *files)
{
    int status = hub_choose(files, HUB_TAG_DRAFTER, "", NULL);
    carat_assert(files->n == (status == CARAT_OK));
    if (files->n) carat_assert(hub_is_drafter(files->at[0].path));
}

static void read_name(const char *text)
{
    struct hub_name name, again;
    struct carat_error err = {0};
    struct buf shown = {0};
    int status = hub_name_read(text, &name, &err);
    carat_assert(status == CARAT_OK || (status == CARAT_EUSAGE && err.message[0]));
    if (status == CARAT_OK && name.kind != HUB_NONE) {
        if (name.kind != HUB_URL) check_path(name.owner);
        if (name.kind != HUB_URL) check_path(name.repository);
        if (name.file[0]) check_path(name.file);
        hub_name_add(&name, &shown);
        carat_assert(hub_name_read(buf_text(&shown), &again, &err) == CARAT_OK);
        carat_assert(again.kind == name.kind && strcmp(again.file, name.file) == 0);
        buf_clear(&shown);
        url_add_escaped(&shown, text, "/");
    }
    struct url url;
    if (url_read(text, &url)) carat_assert(url_is_same_origin(&url, &url));
    if (url_read(text, &url) && url_is_loopback(&url)) carat_assert(url.host[0]);
    if (hub_name_set_revision(&name, text, &err) == CARAT_OK) check_path(name.revision);
    buf_deinit(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = {.data = data, .size = size};
    struct hub_files files = {0};
    struct carat_error err = {0};
    char commit[HUB_COMMIT_HEX + 1], text[URL_MAX + 64];
    int first = next_byte(&s), kind = first % 4;
    size_t length = size;
    const char *bytes = next_bytes(&s, &length);
    if (kind == 0) {
        carat_assert(is_expected(hub_tree_read(bytes, length, &files, &err), &err));
        check_files(&files);
        if (first / 4 % 2)
            choose_drafter(&files);
        else
            choose(&files);
    } else if (kind == 1) {
        int status = hub_commit_read(bytes, length, commit, &err);
        carat_assert(is_expected(status, &err));
        if (status == CARAT_OK) carat_assert(strlen(commit) == HUB_COMMIT_HEX);
    } else if (kind == 2) {
        int status = ollama_manifest_read(bytes, length, "m-tag.gguf", &files, &err);
        carat_assert(is_expected(status, &err));
        if (status == CARAT_OK) carat_assert(files.n == 1 && files.at[0].sha256[0]);
        check_files(&files);
    } else {
        if (length >= sizeof text) length = sizeof text - 1;
        memcpy(text, bytes, length);
        text[length] = '\0';
        read_name(text);
    }
    hub_files_free(&files);
    return 0;
}
