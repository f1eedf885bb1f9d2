#include "cli/form.h"

#include <string.h>

#include "cli/files.h"

static bool is_schema_text(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '{';
}

static bool is_grammar_text(const char *text)
{
    return strstr(text, "::=") != NULL;
}

static const struct form_option {
    enum option_id id;
    const char *member;
    bool (*is_text)(const char *value); /* else it names a file; NULL: it always does */
} form_options[] = {
    {OPT_JSON_SCHEMA, "json_schema", is_schema_text},
    {OPT_JSON_SCHEMA_FILE, "json_schema", NULL},
    {OPT_GRAMMAR, "grammar", is_grammar_text},
    {OPT_GRAMMAR_FILE, "grammar", NULL},
    {OPT_FORMAT, "response_format", NULL},
};

/* The one option that is set, on the command line or else in the environment; NULL: none is. */
static int find_option(const struct options *o, const struct form_option **out,
                       struct carat_error *err)
{
    *out = NULL;
    for (int by_flag = 1; by_flag >= 0 && !*out; by_flag--) {
        for (size_t i = 0; i < sizeof form_options / sizeof *form_options; i++) {
            const struct option_value *v = &o->values[form_options[i].id];
            if (!(by_flag ? v->is_flag : v->is_set)) continue;
            if (*out) {
                err_set(err, CARAT_EUSAGE, "--%s and --%s exclude each other",
                        option_specs[(*out)->id].name, option_specs[form_options[i].id].name);
                err_hint(err, "an answer can be held to one of them");
                return CARAT_EUSAGE;
            }
            *out = &form_options[i];
        }
    }
    return CARAT_OK;
}

static int read_text(struct form *f, const struct form_option *option, const char *value,
                     struct carat_error *err)
{
    if (option->is_text && option->is_text(value)) {
        buf_add_text(&f->text, value);
        return CARAT_OK;
    }
    if (!*value)
        return err_set(err, CARAT_EUSAGE, "%s: a file%s expected, nothing found", f->option,
                       option->is_text ? " or the text itself" : "");
    f->source = value;
    int status = file_read_some(value, JSON_BYTES_MAX, &f->text, err);
    if (status == CARAT_EUSAGE)
        err_hint(err, "--%s takes a file%s", option_specs[option->id].name,
                 option->is_text ? ", or the text itself" : "");
    return status;
}

static struct carat_value text_value(const char *text, size_t length)
{
    struct carat_value value = {.kind = CARAT_STRING};
    value.as.string.data = text;
    value.as.string.length = length;
    return value;
}

/* {"type": "json_object"} */
static void set_format(struct form *f)
{
    f->type.key.data = "type";
    f->type.key.length = strlen("type");
    f->type.value = text_value("json_object", strlen("json_object"));
    f->member.value = (struct carat_value){.kind = CARAT_OBJECT};
    f->member.value.as.object.members = &f->type;
    f->member.value.as.object.count = 1;
}

int form_read(struct form *f, const struct options *o, struct carat_error *err)
{
    const struct form_option *option;
    TRY(find_option(o, &option, err));
    if (!option) return CARAT_OK;
    option_spelling(option->id, 0, f->option, sizeof f->option);
    f->source = f->option;
    if (option->id == OPT_FORMAT)
        set_format(f);
    else
        TRY(read_text(f, option, opt_text(o, option->id), err));
    if (f->text.failed) return err_no_memory(err, f->source, f->text.length);
    f->is_set = true;
    f->is_flag = o->values[option->id].is_flag;
    f->member.key.data = option->member;
    f->member.key.length = strlen(option->member);
    if (option->id == OPT_FORMAT) return CARAT_OK;
    if (strcmp(option->member, "grammar") == 0) {
        f->member.value = text_value(buf_text(&f->text), f->text.length);
        return CARAT_OK;
    }
    int status = json_tree_read(&f->schema, buf_text(&f->text), f->text.length, JSON_PLAIN, err);
    if (status == CARAT_EUSAGE) err_hint(err, "a JSON Schema is expected");
    if (status != CARAT_OK) return err_within(err, "%s", f->source), status;
    f->member.value = f->schema.root;
    return CARAT_OK;
}

void form_close(struct form *f)
{
    buf_deinit(&f->text);
    json_tree_free(&f->schema);
    *f = (struct form){0};
}

int form_put(const struct form *f, struct chat_request *request, struct carat_error *err)
{
    static const char *const others[] = {"response_format", "grammar", "json_schema"};
    static const struct carat_value nothing = {.kind = CARAT_NULL};
    if (!f->is_set) return CARAT_OK;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (json_member(&request->root, others[i])->kind == CARAT_NULL) continue;
        if (!f->is_flag) return CARAT_OK;
        TRY(chat_request_put(request, others[i], nothing, err));
    }
    return chat_request_put(request, f->member.key.data, f->member.value, err);
}

int form_open_grammar(const struct form *f, const carat_model *model,
                      const struct carat_value *request, carat_grammar **out,
                      struct carat_error *err)
{
    int status = carat_grammar_open_chat(out, model, request, err);
    if (status != CARAT_OK && f->is_set) err_within(err, "%s", f->source);
    return status;
}
