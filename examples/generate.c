/* Answers a chat request in JSON, as OpenAI's API has it:
 *     ./generate demo.gguf '{"messages": [{"role": "user", "content": "Tell me a story."}]}' */
#include <carat.h>
#include <stdio.h>
#include <string.h>

static void print(const struct carat_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (parts[i].kind == CARAT_PART_TEXT) fwrite(parts[i].text, 1, parts[i].length, stdout);
}

int main(int argc, char **argv)
{
    carat_model *model = NULL;
    carat_engine *engine = NULL;
    carat_answer *answer = NULL;
    carat_grammar *grammar = NULL; /* of tools or a response_format; else it stays NULL */
    struct carat_error err;
    static struct carat_request request; /* zeroed: defaults */
    carat_request_id id;
    const struct carat_part *parts;
    int32_t *ids = NULL;
    size_t n, n_ids = 0;
    if (argc != 3) return fprintf(stderr, "usage: generate MODEL.gguf REQUEST\n"), 2;
    int status = carat_model_open(&model, argv[1], &err);
    if (!status) status = carat_engine_open(&engine, model, NULL, &err);
    if (!status)
        status = carat_chat_tokenize_json(model, argv[2], strlen(argv[2]), &ids, &n_ids, &err);
    if (!status)
        status = carat_grammar_open_chat_json(&grammar, model, argv[2], strlen(argv[2]), &err);
    if (!status) status = carat_answer_open(&answer, model, ids, n_ids, NULL, &err);
    request.grammar = grammar;
    request.prompt = ids;
    request.n_prompt = n_ids;
    if (!status) request.sampling = carat_model_info(model)->sampling;
    if (!status) status = carat_submit(engine, &request, &id, &err);
    for (int more = 1; !status && more > 0;) {
        more = carat_step(engine, &err);
        if (more < 0) status = more;
        for (const struct carat_event *e; !status && (e = carat_next_event(engine));) {
            if (e->kind == CARAT_EVENT_DONE && e->finish == CARAT_FINISH_ERROR) {
                status = CARAT_ENUMERIC;
                snprintf(err.message, sizeof err.message, "%s", e->message);
            }
            if (e->kind != CARAT_EVENT_TOKEN) continue;
            status = carat_answer_push(answer, &e->id, 1, &parts, &n, &err);
            print(parts, n);
        }
        fflush(stdout);
    }
    if (!status) status = carat_answer_finish(answer, &parts, &n, &err);
    if (!status) print(parts, n);
    printf("\n");
    if (status) fprintf(stderr, "generate: %s\n", err.message);
    carat_free(ids);
    carat_answer_close(answer);
    carat_engine_close(engine);
    carat_grammar_close(grammar);
    carat_model_close(model);
    return carat_exit_status((enum carat_status)status);
}
