#include "api/turns.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "json/json_tree.h"

/* ---- Texts ------------------------------------------------------------------------------ */

struct carat_value turns_part(struct tree *tree, struct carat_value text)
{
    struct tree_object part = {0};
    tree_put(tree, &part, "type", tree_text("text"));
    tree_put(tree, &part, "text", text);
    return tree_object_value(&part);
}

struct carat_value turns_content(const struct tree_array *parts)
{
    if (parts->count == 0) return tree_text("");
    return parts->count == 1 ? *json_member(&parts->items[0], "text") : tree_array_value(parts);
}

/* The texts of parts as one, a line each. */
static struct carat_value joined(struct tree *tree, const struct tree_array *parts)
{
    size_t length = 0, at = 0;
    if (parts->count < 2) return turns_content(parts);
    for (size_t i = 0; i < parts->count; i++)
        length += json_member(&parts->items[i], "text")->as.string.length + 1;
    char *all = tree->failed ? NULL : arena_take(tree->arena, length, 1);
    if (!all) {
        tree->failed = true;
        return tree_null();
    }
    for (size_t i = 0; i < parts->count; i++) {
        const struct carat_value *text = json_member(&parts->items[i], "text");
        if (text->as.string.length) memcpy(all + at, text->as.string.data, text->as.string.length);
        at += text->as.string.length;
        all[at++] = '\n';
    }
    return tree_string(all, length - 1);
}

struct carat_value turns_failure(struct tree *tree, const struct tree_array *parts)
{
    struct tree_object failure = {0};
    tree_put(tree, &failure, "error", joined(tree, parts));
    return tree_object_value(&failure);
}

/* ---- Answers ---------------------------------------------------------------------------- */

/* Remembers the calls, so that results find them. */
static void remember_calls(struct turns *t)
{
    t->n_asked = 0;
    if (t->calls.count == 0 || t->tree->failed) return;
    t->asked = arena_take(t->tree->arena, t->calls.count, sizeof *t->asked);
    if (!t->asked) {
        t->tree->failed = true;
        return;
    }
    for (; t->n_asked < t->calls.count; t->n_asked++) {
        const struct carat_value *call = &t->calls.items[t->n_asked];
        t->asked[t->n_asked].id = *json_member(call, "id");
        t->asked[t->n_asked].name = *json_member(json_member(call, "function"), "name");
    }
}

void turns_close(struct turns *t)
{
    struct tree_object m = {0};
    if (!t->is_open) return;
    tree_put(t->tree, &m, "role", tree_text("assistant"));
    if (t->thoughts.count) tree_put(t->tree, &m, "reasoning", joined(t->tree, &t->thoughts));
    if (t->texts.count || !t->calls.count)
        tree_put(t->tree, &m, "content", turns_content(&t->texts));
    if (t->calls.count) tree_put(t->tree, &m, "tool_calls", tree_array_value(&t->calls));
    tree_push(t->tree, &t->messages, tree_object_value(&m));
    remember_calls(t);
    t->thoughts = t->texts = t->calls = (struct tree_array){0};
    t->is_open = false;
}

void turns_open(struct turns *t)
{
    t->is_open = true;
}

void turns_thought(struct turns *t, struct carat_value text)
{
    turns_open(t);
    if (text.as.string.length) tree_push(t->tree, &t->thoughts, turns_part(t->tree, text));
}

void turns_text(struct turns *t, struct carat_value text)
{
    turns_open(t);
    tree_push(t->tree, &t->texts, turns_part(t->tree, text));
}

void turns_thoughts(struct turns *t, const struct tree_array *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        turns_thought(t, *json_member(&parts->items[i], "text"));
}

void turns_texts(struct turns *t, const struct tree_array *parts)
{
    for (size_t i = 0; i < parts->count; i++) turns_text(t, *json_member(&parts->items[i], "text"));
}

int turns_call(struct turns *t, const struct place *where, struct carat_value id,
               struct carat_value name, struct carat_value arguments, struct carat_error *err)
{
    struct tree_object call = {0}, function = {0};
    turns_open(t);
    if (t->calls.count == TURNS_CALLS_MAX)
        return err_set(err, CARAT_EUSAGE, "%s: at most %d calls in an answer expected", where->path,
                       TURNS_CALLS_MAX);
    tree_put(t->tree, &function, "name", name);
    tree_put(t->tree, &function, "arguments", arguments);
    tree_put(t->tree, &call, "id", id);
    tree_put(t->tree, &call, "type", tree_text("function"));
    tree_put(t->tree, &call, "function", tree_object_value(&function));
    tree_push(t->tree, &t->calls, tree_object_value(&call));
    return CARAT_OK;
}

/* ---- Other messages --------------------------------------------------------------------- */

void turns_message(struct turns *t, const char *role, struct carat_value content)
{
    struct tree_object m = {0};
    turns_close(t);
    tree_put(t->tree, &m, "role", tree_text(role));
    tree_put(t->tree, &m, "content", content);
    tree_push(t->tree, &t->messages, tree_object_value(&m));
    t->n_asked = 0;
}

static bool is_same_text(struct carat_value a, struct carat_value b)
{
    size_t n = a.as.string.length;
    return a.kind == CARAT_STRING && b.kind == CARAT_STRING && n == b.as.string.length &&
           (n == 0 || memcmp(a.as.string.data, b.as.string.data, n) == 0);
}

static void add_result(struct turns *t, struct turns_call *call, struct carat_value content)
{
    struct tree_object m = {0};
    call->is_answered = true;
    tree_put(t->tree, &m, "role", tree_text("tool"));
    tree_put(t->tree, &m, "tool_call_id", call->id);
    tree_put(t->tree, &m, "content", content);
    tree_push(t->tree, &t->messages, tree_object_value(&m));
}

int turns_result(struct turns *t, const struct place *where, struct carat_value content,
                 struct carat_error *err)
{
    turns_close(t);
    for (size_t i = 0; i < t->n_asked; i++) {
        if (!is_same_text(t->asked[i].id, *where->value)) continue;
        add_result(t, &t->asked[i], content);
        return CARAT_OK;
    }
    if (t->tree->failed) return tree_check(t->tree, err);
    return place_wrong(where, "the id of a call in the answer before it", err);
}

int turns_result_by_name(struct turns *t, const struct place *where, struct carat_value content,
                         struct carat_error *err)
{
    turns_close(t);
    for (size_t i = 0; i < t->n_asked; i++) {
        bool is_named = place_is_null(where) || is_same_text(t->asked[i].name, *where->value);
        if (t->asked[i].is_answered || !is_named) continue;
        add_result(t, &t->asked[i], content);
        return CARAT_OK;
    }
    if (t->tree->failed) return tree_check(t->tree, err);
    return place_wrong(where, "the name of a call in the answer before it", err);
}
