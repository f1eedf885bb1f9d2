#include "hub/choose.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"

/* ---- Names of files --------------------------------------------------------------------- */

struct split {
    size_t stem;     /* bytes of the path before "-00001-of-00003.gguf" or ".gguf" */
    int part, parts; /* 1 of 1: not split */
};

static int five_digits(const char *text)
{
    int value = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

static struct split split_of(const char *path)
{
    size_t n = strlen(path);
    struct split s = {.stem = n > 5 ? n - 5 : 0, .part = 1, .parts = 1};
    if (s.stem <= 15) return s;
    const char *at = path + s.stem - 15; /* "-00001-of-00003" */
    if (at[0] != '-' || strncmp(at + 6, "-of-", 4) != 0) return s;
    int part = five_digits(at + 1), parts = five_digits(at + 10);
    if (part < 1 || parts < part) return s;
    return (struct split){s.stem - 15, part, parts};
}

static bool is_same_model(const char *a, const char *b)
{
    struct split x = split_of(a), y = split_of(b);
    return x.stem == y.stem && x.parts == y.parts && memcmp(a, b, x.stem) == 0;
}

/* Whether the path has this word, in any case. */
static bool has_word(const char *path, const char *word)
{
    size_t n = strlen(word);
    for (; *path; path++)
        if (strncasecmp(path, word, n) == 0) return true;
    return false;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Google calls its drafters "it-assistant", others call them "MTP", or put them into a folder of
 * that name. */
static bool is_drafter(const char *path)
{
    const char *name = name_of(path);
    bool is_in_folder = name - path >= 4 && strncasecmp(name - 4, "MTP/", 4) == 0 &&
                        (name - path == 4 || name[-5] == '/');
    return is_in_folder || has_word(name, "mtp") || has_word(name, "it-assistant");
}

/* Image projectors and importance matrices. */
static bool is_extra(const char *path)
{
    return has_word(name_of(path), "mmproj") || has_word(name_of(path), "imatrix");
}

/* Files that come with a model and are none. */
static bool is_helper(const char *path)
{
    return is_extra(path) || is_drafter(path);
}

int hub_parts(const char *path)
{
    return split_of(path).parts;
}

void hub_add_part(const char *path, int i, struct buf *out)
{
    struct split s = split_of(path);
    size_t n = strlen("-00001-of-00003");
    if (s.parts == 1)
        buf_add_text(out, path);
    else
        buf_printf(out, "%.*s-%05d-of-%05d%s", (int)s.stem, path, i + 1, s.parts,
                   path + s.stem + n);
}

bool hub_is_drafter(const char *path)
{
    return is_drafter(path) && !is_extra(path) && split_of(path).parts == 1;
}

bool hub_is_model(const char *path)
{
    return !is_helper(path) && split_of(path).part == 1;
}

/* "Q4_K_M", "IQ4_NL", "F16", "BF16", "MXFP4", "Q8_0". */
static bool is_quantisation(const char *text, size_t n)
{
    size_t letters = 0, i;
    while (letters < n && isalpha((unsigned char)text[letters])) letters++;
    static const char *const kinds[] = {"Q", "IQ", "TQ", "F", "BF", "FP", "MXFP", "NVFP"};
    bool is_kind = false;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++)
        is_kind |= letters == strlen(kinds[i]) && strncasecmp(text, kinds[i], letters) == 0;
    if (!is_kind || letters == n || !isdigit((unsigned char)text[letters])) return false;
    for (i = letters; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_') return false;
    return true;
}

const char *hub_tag_of_path(const char *path, char out[HUB_TAG_MAX])
{
    size_t end = split_of(path).stem, begin = end;
    out[0] = '\0';
    while (begin > 0 && !strchr("-./", path[begin - 1])) begin--;
    if (begin == 0 || !is_quantisation(path + begin, end - begin)) return out;
    if (begin >= 4 && strncasecmp(path + begin - 4, "-UD-", 4) == 0) begin -= 3;
    if (end - begin >= HUB_TAG_MAX) return out;
    for (size_t i = begin; i < end; i++) out[i - begin] = (char)toupper((unsigned char)path[i]);
    out[end - begin] = '\0';
    return out;
}

bool hub_tag_is_own(const struct hub_files *files, size_t k, size_t n)
{
    char tag[HUB_TAG_MAX], other[HUB_TAG_MAX];
    const char *path = files->at[k].path;
    bool is_own = hub_tag_of_path(path, tag)[0] != '\0';
    for (size_t i = 0; i < files->n && is_own; i++) {
        const char *file = files->at[i].path;
        if (i == k || strncmp(path, file, n) != 0 || !hub_is_model(file)) continue;
        is_own = strcmp(hub_tag_of_path(file, other), tag) != 0;
    }
    return is_own;
}

/* Whether the name ends with "-TAG", "_TAG" or ".TAG", or lies in a folder TAG. */
static bool ends_with_tag(const char *path, const char *tag)
{
    size_t end = split_of(path).stem, n = strlen(tag);
    bool is_end =
        end > n && strchr("-_.", path[end - n - 1]) && strncasecmp(path + end - n, tag, n) == 0;
    return is_end || (strncasecmp(path, tag, n) == 0 && path[n] == '/');
}

/* ---- Choosing --------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

/* Parts are sorted, so a whole split begins at i if its last part is where it should be. */
static size_t parts_at(const struct hub_files *files, size_t i)
{
    struct split s = split_of(files->at[i].path);
    size_t n = (size_t)s.parts;
    if (s.part != 1 || i + n > files->n) return 0;
    for (size_t k = 0; k < n; k++) {
        const char *path = files->at[i + k].path;
        if (!is_same_model(files->at[i].path, path) || split_of(path).part != (int)k + 1) return 0;
    }
    return n;
}

/* A drafter is of use only if its file is named, or if there is nothing else. */
static bool is_useful(const char *path, const char *file, bool has_models)
{
    return !is_helper(path) || (hub_is_drafter(path) && (!has_models || strcmp(path, file) == 0));
}

static void drop_useless(struct hub_files *files, const char *file)
{
    bool has_models = false;
    for (size_t i = 0; i < files->n; i++) has_models |= hub_is_model(files->at[i].path);
    qsort(files->at, files->n, sizeof *files->at, by_path);
    for (size_t i = 0; i < files->n;) {
        size_t n = is_useful(files->at[i].path, file, has_models) ? parts_at(files, i) : 0;
        if (n == 0) hub_files_drop(files, i);
        i += n ? n : 1;
    }
    hub_files_pack(files);
}

enum fit { FIT_NONE, FIT_END, FIT_WHOLE };

static enum fit fit_of(const char *path, const char *tag, const char *file)
{
    char own[HUB_TAG_MAX];
    if (file[0]) return strcmp(path, file) == 0 ? FIT_WHOLE : FIT_NONE;
    if (strcasecmp(hub_tag_of_path(path, own), tag) == 0) return FIT_WHOLE;
    return ends_with_tag(path, tag) ? FIT_END : FIT_NONE;
}

/* Makes one entry of each model. */
static void join_parts(struct hub_files *files)
{
    for (size_t i = 0, n; i < files->n; i += n) {
        n = (size_t)split_of(files->at[i].path).parts;
        for (size_t k = 1; k < n; k++) {
            files->at[i].size = bytes_add(files->at[i].size, files->at[i + k].size);
            hub_files_drop(files, i + k);
        }
    }
    hub_files_pack(files);
}

/* ---- Drafters --------------------------------------------------------------------------- */

/* The one that llama.cpp would take, by its name; else one of 8 bits; else any. */
static int drafter_rank(const char *path)
{
    char tag[HUB_TAG_MAX];
    if (strncasecmp(name_of(path), "mtp-", 4) == 0) return 0;
    return strcmp(hub_tag_of_path(path, tag), "Q8_0") == 0 ? 1 : 2;
}

int hub_compare_drafters(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    int by_rank = drafter_rank(x->path) - drafter_rank(y->path);
    if (by_rank != 0) return by_rank;
    return x->size != y->size ? (x->size > y->size) - (x->size < y->size) : by_path(a, b);
}

/* "MTP", or "MTP-Q8_0". */
static bool means_drafter(const char *tag)
{
    size_t n = strlen(HUB_TAG_DRAFTER);
    return strncasecmp(tag, HUB_TAG_DRAFTER, n) == 0 && (!tag[n] || tag[n] == '-');
}

/* `tag`: its quantisation, or "". */
static int choose_drafter(struct hub_files *files, const char *tag, struct carat_error *err)
{
    for (size_t i = 0; i < files->n; i++) {
        const char *path = files->at[i].path;
        bool fits = !tag[0] || fit_of(path, tag, "") != FIT_NONE;
        if (!hub_is_drafter(path) || !fits) hub_files_drop(files, i);
    }
    hub_files_pack(files);
    if (files->n == 0) {
        err_set(err, CARAT_EUSAGE, "there is no drafter%s%s", tag[0] ? " in " : "", tag);
        err_hint(err, "drafters have \"mtp\" or \"it-assistant\" in their names");
        return CARAT_EUSAGE;
    }
    qsort(files->at, files->n, sizeof *files->at, hub_compare_drafters);
    for (size_t i = 1; i < files->n; i++) hub_files_drop(files, i);
    hub_files_pack(files);
    return CARAT_OK;
}

/* ---- The interface ---------------------------------------------------------------------- */

int hub_choose(struct hub_files *files, const char *tag, const char *file, struct carat_error *err)
{
    if (!file[0] && means_drafter(tag))
        return choose_drafter(files, tag + strlen(HUB_TAG_DRAFTER) + (strchr(tag, '-') != NULL),
                              err);
    if (files->n) drop_useless(files, file);
    if (!tag[0]) tag = HUB_TAG_DEFAULT;
    size_t chosen = 0, n_best = 0;
    enum fit best = FIT_NONE;
    /* A file that is any part of a split model means all of it. */
    for (size_t i = 0; i < files->n; i += (size_t)split_of(files->at[i].path).parts) {
        bool is_part = file[0] && is_same_model(files->at[i].path, file);
        enum fit fit = is_part ? FIT_WHOLE : fit_of(files->at[i].path, tag, file);
        if (fit == FIT_NONE || fit < best) continue;
        n_best = fit > best ? 1 : n_best + 1;
        best = fit;
        chosen = i;
    }
    if (n_best == 1) {
        size_t n = (size_t)split_of(files->at[chosen].path).parts;
        for (size_t i = 0; i < files->n; i++)
            if (i < chosen || i >= chosen + n) hub_files_drop(files, i);
        hub_files_pack(files);
        return CARAT_OK;
    }
    join_parts(files);
    if (files->n == 0) return err_set(err, CARAT_EUSAGE, "there is no GGUF model");
    if (file[0]) return err_set(err, CARAT_EUSAGE, "there is no file %.200s", file);
    return err_set(err, CARAT_EUSAGE, n_best ? "%zu models fit %s" : "of %zu models none is %s",
                   n_best ? n_best : files->n, tag);
}
