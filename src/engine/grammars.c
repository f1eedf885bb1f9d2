/* The functions of carat.h that open grammars: a notation becomes expressions, and these, with the
 * model's vocabulary, an automaton. */
#include "base/status.h"
#include "engine/model_file.h"
#include "grammar/chat_grammar.h"
#include "grammar/gbnf.h"
#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "json/json_tree.h"

static int find_tokens(const carat_model *model, const struct token_index **out,
                       struct carat_error *err)
{
    struct model_tokens *tokens = model->tokens;
    int status = CARAT_OK;
    pthread_mutex_lock(&tokens->lock);
    if (!tokens->index) status = index_open(&tokens->index, model->vocab, err);
    *out = tokens->index;
    pthread_mutex_unlock(&tokens->lock);
    return status;
}

/* Compiles the rules that a reader has put into the builder. */
static int open_rule(carat_grammar **out, const carat_model *model, struct expr_builder *b,
                     int32_t root, struct carat_error *err)
{
    const struct grammar_options options = {.trigger = -1, .takes_thoughts = true};
    const struct token_index *tokens;
    TRY(find_tokens(model, &tokens, err));
    return grammar_open(out, b, root, tokens, &options, err);
}

int carat_grammar_open_gbnf(carat_grammar **out, const carat_model *model, const char *text,
                            size_t length, struct carat_error *err)
{
    struct expr_builder b = {0};
    int32_t root = -1;
    *out = NULL;
    int status = gbnf_read(&b, model->vocab, text, length, &root, err);
    if (!status) status = open_rule(out, model, &b, root, err);
    builder_deinit(&b);
    return status;
}

static int read_schema(struct expr_builder *b, const char *json, size_t length, int32_t *root,
                       struct carat_error *err)
{
    enum { BYTES_MAX = 1 << 20 };
    const struct value_syntax syntax = {.quote = -1};
    const struct expr *body;
    struct json_tree tree;
    if (length > BYTES_MAX)
        return err_set(err, CARAT_EUNSUPPORTED, "json schema: at most %d bytes expected, %zu found",
                       BYTES_MAX, length);
    int status = json_tree_read(&tree, json, length, JSON_PLAIN, err);
    if (status) return err ? err_within(err, "json schema") : status;
    status = json_schema_expr(b, &tree.root, &syntax, &body, err);
    json_tree_free(&tree);
    if (status) return status;
    *root = rule_add(b, "root", 4);
    rule_set(b, *root, body);
    return builder_check(b, err);
}

int carat_grammar_open_json_schema(carat_grammar **out, const carat_model *model, const char *json,
                                   size_t length, struct carat_error *err)
{
    struct expr_builder b = {0};
    int32_t root = -1;
    *out = NULL;
    int status = read_schema(&b, json, length, &root, err);
    if (!status) status = open_rule(out, model, &b, root, err);
    builder_deinit(&b);
    return status;
}

int carat_grammar_open_chat(carat_grammar **out, const carat_model *model,
                            const struct carat_value *request, struct carat_error *err)
{
    const struct token_index *tokens;
    *out = NULL;
    TRY(find_tokens(model, &tokens, err));
    return chat_grammar_open(out, model->vocab, tokens, request, err);
}

int carat_grammar_open_chat_json(carat_grammar **out, const carat_model *model, const char *json,
                                 size_t length, struct carat_error *err)
{
    struct json_tree tree;
    *out = NULL;
    TRY(json_tree_read(&tree, json, length, JSON_CHAT_REQUEST, err));
    int status = carat_grammar_open_chat(out, model, &tree.root, err);
    json_tree_free(&tree);
    return status;
}

void carat_grammar_close(carat_grammar *grammar)
{
    grammar_close(grammar);
}
