#include "cli/inputs.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"

static int check(const struct stat *target, const char *path, const char *source, const char *what,
                 struct carat_error *err)
{
    struct stat facts;
    int found = source ? stat(source, &facts) : fstat(STDIN_FILENO, &facts);
    bool is_same = found == 0 && S_ISREG(facts.st_mode) && facts.st_dev == target->st_dev &&
                   facts.st_ino == target->st_ino;
    if (!is_same) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s: is %s, which would be lost", path, what);
    err_hint(err, "write the result to another file");
    return CARAT_EUSAGE;
}

/* All parts of a split model: NAME-00001-of-00003.gguf and so on, any of which may be named. */
static int check_parts(const struct stat *target, const char *path, const char *model,
                       struct carat_error *err)
{
    enum { SUFFIX_BYTES = 20, PARTS_MAX = 512 };
    int number, count, end = 0;
    size_t length = strlen(model);
    if (length <= SUFFIX_BYTES) return CARAT_OK;
    size_t stem = length - SUFFIX_BYTES;
    if (sscanf(model + stem, "-%5d-of-%5d.gguf%n", &number, &count, &end) != 2 ||
        end != SUFFIX_BYTES)
        return CARAT_OK;
    struct buf part = {0};
    int status = CARAT_OK;
    for (int i = 1; i <= count && i <= PARTS_MAX && status == CARAT_OK; i++) {
        buf_clear(&part);
        buf_add(&part, model, stem);
        buf_printf(&part, "-%05d-of-%05d.gguf", i, count);
        status = part.failed ? err_no_memory(err, model, length)
                             : check(target, path, buf_text(&part), "a part of the model", err);
    }
    buf_deinit(&part);
    return status;
}

/* An option whose value is a file reads it, except for these, which write it. */
static bool is_read(enum option_id id)
{
    const char *value = option_specs[id].value;
    return id != OPT_OUTPUT && id != OPT_IMATRIX_OUT && id != OPT_SAVE_LOGITS &&
           (strstr(value, "FILE") != NULL || strcmp(value, "BASE") == 0);
}

int inputs_protect(const struct options *o, const char *model, const char *target,
                   struct carat_error *err)
{
    struct stat facts;
    if (stat(target, &facts) != 0 || !S_ISREG(facts.st_mode)) return CARAT_OK; /* no file to lose */
    if (model) TRY(check(&facts, target, model, "the model", err));
    if (model) TRY(check_parts(&facts, target, model, err));
    for (int id = 0; id < OPT_COUNT; id++) {
        const struct option_value *v = &o->values[id];
        char what[96];
        if (!v->is_set || !is_read((enum option_id)id)) continue;
        snprintf(what, sizeof what, "what --%s reads", option_specs[id].name);
        if (v->text) TRY(check(&facts, target, v->text, what, err));
        for (size_t i = 0; i < v->n_list; i++) TRY(check(&facts, target, v->list[i], what, err));
    }
    return check(&facts, target, NULL, "standard input", err);
}
