#include "api/translation.h"

#include <string.h>

#include "base/status.h"
#include "json/json_tree.h"

void translation_begin(struct translation *r, struct ask *ask, const struct carat_value *body,
                       const struct ask_limits *limits, struct carat_error *err)
{
    *r = (struct translation){.ask = ask,
                              .body = place_body(body),
                              .limits = limits,
                              .tree = {.arena = &ask->request.json.arena},
                              .err = err};
    r->turns.tree = &r->tree;
}

int translation_end(struct translation *r)
{
    turns_close(&r->turns);
    if (r->turns.messages.count)
        tree_put(&r->tree, &r->root, "messages", tree_array_value(&r->turns.messages));
    TRY(tree_check(&r->tree, r->err));
    r->ask->request.root = tree_object_value(&r->root);
    return CARAT_OK;
}

/* ---- Texts ------------------------------------------------------------------------------ */

int translation_part(struct translation *r, const struct place *part,
                     const struct translation_type *types, struct tree_array *parts)
{
    TRY(place_expect(part, CARAT_OBJECT, r->err));
    struct place type = place_member(part, "type");
    for (; types->type; types++) {
        if (!json_text_is(type.value, types->type)) continue;
        struct place text = place_member(part, types->key);
        TRY(place_expect(&text, CARAT_STRING, r->err));
        tree_push(&r->tree, parts, turns_part(&r->tree, *text.value));
        return CARAT_OK;
    }
    return chat_request_refuse_part(type.path, type.value, r->err);
}

int translation_content(struct translation *r, const struct place *content,
                        const struct translation_type *types, struct tree_array *parts)
{
    if (content->value->kind == CARAT_STRING) {
        tree_push(&r->tree, parts, turns_part(&r->tree, *content->value));
        return CARAT_OK;
    }
    if (content->value->kind != CARAT_ARRAY)
        return place_wrong(content, "a string or an array", r->err);
    for (size_t i = 0; i < content->value->as.array.count; i++) {
        struct place part = place_item(content, i);
        TRY(translation_part(r, &part, types, parts));
    }
    return CARAT_OK;
}

/* ---- Arguments -------------------------------------------------------------------------- */

static bool is_blank(const struct carat_value *text)
{
    size_t length = text->as.string.length, blanks = 0;
    while (blanks < length && memchr(" \t\r\n", text->as.string.data[blanks], 4)) blanks++;
    return blanks == length;
}

/* A text that holds no object comes from a call that was cut, or that the client damaged. It is
 * read as a call without arguments: a refusal would end every conversation that has it in its
 * history. */
static int parse(struct translation *r, const struct carat_value *text, struct carat_value *out)
{
    static const struct carat_value empty = {.kind = CARAT_OBJECT};
    struct carat_error inner = {0};
    int status = json_tree_add(&r->ask->request.json, text->as.string.data, text->as.string.length,
                               out, &inner);
    if (status == CARAT_EMEMORY || r->ask->request.json.is_full)
        return err_set(r->err, status, "%s", inner.message);
    if (status != CARAT_OK || out->kind != CARAT_OBJECT) *out = empty;
    return CARAT_OK;
}

int translation_arguments(struct translation *r, const struct place *arguments,
                          struct carat_value *out)
{
    static const struct carat_value empty = {.kind = CARAT_OBJECT};
    bool is_text = arguments->value->kind == CARAT_STRING;
    *out = *arguments->value;
    if (place_is_null(arguments) || (is_text && is_blank(arguments->value))) *out = empty;
    if (out->kind == CARAT_STRING) TRY(parse(r, arguments->value, out));
    struct place parsed = *arguments;
    parsed.value = out;
    if (out->kind == CARAT_OBJECT) return place_expect_depth(&parsed, TURNS_DEPTH_MAX, r->err);
    return err_set(r->err, CARAT_EUSAGE, "%s: a JSON object expected, %s found", arguments->path,
                   json_kind_name(out));
}
