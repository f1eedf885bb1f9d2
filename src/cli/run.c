/* carat run: one prompt, one answer. */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "carat.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/file_writer.h"
#include "cli/files.h"
#include "cli/generate.h"
#include "cli/inputs.h"
#include "cli/prompt_cache.h"
#include "cli/request_file.h"
#include "cli/session.h"
#include "cli/setup.h"
#include "cli/signals.h"
#include "cli/terminal.h"

/* Where the parts of the answer go. */
struct sink {
    const struct options *o;
    struct file_writer writer; /* -o FILE; closed: standard output */
    struct carat_error *err;
    int status;
    char last; /* byte written last; 0: nothing yet */
};

static bool sink_write(struct sink *sink, const char *text, size_t length)
{
    if (length == 0) return true;
    sink->last = text[length - 1];
    if (!file_writer_is_open(&sink->writer)) return out_model_text(text, length);
    sink->status = file_writer_add(&sink->writer, text, length, sink->err);
    return sink->status == CARAT_OK;
}

static bool end_line(struct sink *sink)
{
    return sink->last == '\n' || sink->last == '\0' || sink_write(sink, "\n", 1);
}

static bool show(void *user, enum carat_part_kind kind, const char *text, size_t length)
{
    struct sink *sink = user;
    const struct options *o = sink->o;
    if (kind == CARAT_PART_THINKING && !opt_is_set(o, OPT_SHOW_THINKING)) {
        bool is_hidden = opt_is_set(o, OPT_HIDE_THINKING) || opt_is_set(o, OPT_JSON);
        if (!is_hidden) err_thought(text, length);
        return true;
    }
    if (opt_is_set(o, OPT_JSON)) return true;
    err_thought_end();
    if (kind == CARAT_PART_TOOL_CALL && !end_line(sink)) return false;
    bool is_wrapped = kind != CARAT_PART_TOOL_CALL && !file_writer_is_open(&sink->writer);
    if (!is_wrapped) return sink_write(sink, text, length);
    sink->last = text[length - 1];
    return out_answer_text(text, length);
}

/* What is asked, and everything that it borrows from. */
struct asked {
    struct generation generation;
    struct buf prompt;
    struct chat_request request; /* --request */
    struct json_tree tools;      /* --tools */
    struct form form;            /* --json-schema and the like */
    carat_grammar *grammar;      /* NULL: the answer is free */
};

static void asked_close(struct asked *a)
{
    if (!a) return;
    buf_deinit(&a->prompt);
    chat_request_close(&a->request);
    json_tree_free(&a->tools);
    form_close(&a->form);
    carat_grammar_close(a->grammar);
    mem_free(a);
}

/* ---- Prompt ----------------------------------------------------------------------------- */

/* All of standard input. A note explains the wait after two seconds of silence; without it the
 * program would seem to hang. */
static int read_piped(size_t bytes_max, struct buf *out, struct carat_error *err)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, 2000) == 0)
        note("waiting for the end of standard input; use </dev/null if there is none");
    return file_read_some("-", bytes_max, out, err);
}

/* Joins --prompt, arguments, --file and piped input, and reads no more than a context can hold. */
static int read_prompt(const struct options *o, const struct session *s, struct buf *out,
                       struct carat_error *err)
{
    size_t first = s->next_argument, bytes_max;
    int32_t n_ctx = carat_model_info(s->model)->n_ctx_train;
    int64_t asked = opt_int(o, OPT_CTX);
    if (asked > 1 && asked < n_ctx) n_ctx = (int32_t)asked;
    carat_check_prompt_bytes(s->model, 0, n_ctx, &bytes_max, NULL);
    const char *joint = opt_is_set(o, OPT_RAW) ? "" : "\n\n";
    struct buf more = {0};
    int status = prompt_given(o, first, joint, bytes_max, out, err);
    if (status == CARAT_OK && !isatty(STDIN_FILENO)) {
        status = read_piped(bytes_max, &more, err);
        if (out->length && more.length) buf_add_text(out, joint);
        buf_add(out, buf_text(&more), more.length);
    }
    buf_deinit(&more);
    if (status == CARAT_OK && out->failed) status = err_no_memory(err, "prompt", out->length);
    if (status == CARAT_OK)
        status = carat_check_prompt_bytes(s->model, out->length, n_ctx, NULL, err);
    if (status == CARAT_OK && out->length == 0) {
        status = err_set(err, CARAT_EUSAGE, "run: the prompt is empty");
        err_hint(err, "give it as arguments, with -p, -f, or through a pipe");
    }
    return status;
}

/* The prompt as ids: through the chat template, or as it is. */
static int make_ids(const struct options *o, const struct session *s, struct asked *a,
                    int32_t **ids, size_t *n, struct carat_error *err)
{
    const struct buf *prompt = &a->prompt;
    if (opt_is_set(o, OPT_RAW)) {
        struct carat_value raw = {.kind = CARAT_OBJECT};
        raw.as.object.members = &a->form.member;
        raw.as.object.count = a->form.is_set;
        TRY(form_open_grammar(&a->form, s->model, &raw, &a->grammar, err));
        enum carat_special special =
            opt_is_set(o, OPT_SPECIAL) ? CARAT_SPECIAL_ALL : CARAT_SPECIAL_NONE;
        return carat_tokenize(s->model, buf_text(prompt), prompt->length, special, true, ids, n,
                              err);
    }
    struct conversation c;
    TRY(conversation_open(&c, err));
    int status = conversation_configure(&c, o, err);
    if (status == CARAT_OK)
        status = conversation_add(&c, "user", buf_text(prompt), prompt->length, err);
    if (status == CARAT_OK) status = tools_file_read(&a->tools, o, err);
    if (status == CARAT_OK) {
        if (a->tools.documents) c.tools = &a->tools.root;
        if (a->form.is_set) c.form = &a->form.member;
        status = carat_chat_tokenize(s->model, conversation_request(&c), ids, n, err);
    }
    if (status == CARAT_OK)
        status = form_open_grammar(&a->form, s->model, &c.request, &a->grammar, err);
    conversation_close(&c);
    return status;
}

/* Reads what is asked, with the options of sampling, and makes ids of it. */
static int read_asked(struct asked *a, const struct options *o, const struct session *s,
                      int32_t **ids, size_t *n, struct carat_error *err)
{
    if (!opt_is_set(o, OPT_REQUEST)) TRY(read_prompt(o, s, &a->prompt, err));
    TRY(generation_read(&a->generation, o, s->model, err));
    TRY(form_read(&a->form, o, err));
    if (!opt_is_set(o, OPT_REQUEST)) {
        note_thinking(o);
        return make_ids(o, s, a, ids, n, err);
    }
    TRY(request_file_read(&a->request, &a->generation, &a->tools, &a->form, o, s, err));
    int status = carat_chat_tokenize(s->model, &a->request.root, ids, n, err);
    if (status == CARAT_OK)
        status = carat_grammar_open_chat(&a->grammar, s->model, &a->request.root, err);
    if (status != CARAT_OK) err_within(err, "%s", request_file_name(o));
    return status;
}

/* ---- Result ----------------------------------------------------------------------------- */

static void add_calls(struct json *j, const struct buf *calls)
{
    json_begin_array(j);
    for (const char *at = buf_text(calls); *at;) { /* one JSON object a line */
        size_t n = strcspn(at, "\n");
        if (j->need_comma) buf_add_char(j->out, ',');
        buf_add(j->out, at, n);
        j->need_comma = true;
        at += n + (at[n] == '\n');
    }
    json_end_array(j);
}

static bool write_json(struct sink *sink, const struct session *s, const struct answer *a,
                       const struct generation *g)
{
    struct buf b = {0};
    struct json j = {.out = &b};
    json_begin_object(&j);
    json_key_string(&j, "model", buf_text(&s->path));
    json_key_text(&j, "text", buf_text(&a->text), a->text.length);
    json_key_text(&j, "thinking", buf_text(&a->thinking), a->thinking.length);
    json_key(&j, "tool_calls");
    add_calls(&j, &a->calls);
    if (g->want_logprobs) {
        json_key_array(&j, "logprobs");
        buf_add(&b, buf_text(&a->logprobs), a->logprobs.length);
        json_end_array(&j);
    }
    json_key_string(&j, "finish", answer_end_name(a->end));
    json_key_string(&j, "finish_reason", answer_finish_reason(a));
    json_key_bool(&j, "is_context_full", a->end == ANSWER_CONTEXT);
    json_key(&j, "stop_id");
    if (a->end == ANSWER_STOP)
        json_int(&j, a->stop_id);
    else
        json_put_null(&j);
    json_key_int(&j, "prompt_tokens", a->n_prompt);
    json_key_int(&j, "generated_tokens", a->n_generated);
    json_key_int(&j, "drafted_tokens", a->n_drafted);
    json_key_int(&j, "accepted_tokens", a->n_accepted);
    json_key_double(&j, "prefill_seconds", a->prefill_seconds);
    json_key_double(&j, "decode_seconds", a->decode_seconds);
    json_key_int(&j, "seed", (int64_t)g->sampling.seed);
    json_key(&j, "setup");
    setup_add_json(&j, carat_engine_setup(s->engine));
    json_end_object(&j);
    buf_add_char(&b, '\n');
    bool is_written = sink_write(sink, buf_text(&b), b.length);
    buf_deinit(&b);
    return is_written;
}

static int answer_once(const struct options *o, struct session *s, struct asked *a,
                       struct sink *sink, struct answer *answer, struct carat_error *err)
{
    const struct generation *g = &a->generation;
    int32_t *ids = NULL;
    size_t n = 0;
    int status = read_asked(a, o, s, &ids, &n, err);
    a->generation.grammar = a->grammar;
    struct carat_engine_options options = engine_options(o);
    if (status == CARAT_OK) status = session_start(s, &options, err);
    if (status == CARAT_OK) status = prompt_cache_load(o, s->engine, err);
    if (status == CARAT_OK) status = generate(s, g, ids, n, show, sink, answer, err);
    carat_free(ids);
    err_thought_end();
    if (status == CARAT_OK && opt_is_set(o, OPT_JSON))
        write_json(sink, s, answer, g);
    else if (status == CARAT_OK && !(sink->last == '\n'))
        sink_write(sink, "\n", 1);
    if (status == CARAT_OK) status = sink->status;
    /* The user knows the limit that -n sets: reaching it needs no note. */
    if (status == CARAT_OK && answer->end == ANSWER_CONTEXT)
        note("the answer is cut: the context of %d positions is full (-c sets its size)",
             carat_engine_memory(s->engine)->n_ctx);
    if (status == CARAT_OK && answer->end == ANSWER_LENGTH && answer->is_cut_in_thought)
        note("the limit of %d tokens (-n) was reached inside a thought", g->max_tokens);
    if (status == CARAT_OK && opt_is_set(o, OPT_PROFILE)) session_print_profile(s);
    if (status == CARAT_OK) status = prompt_cache_save(o, s->engine, err);
    return status;
}

/* Opens -o FILE before anything is loaded, so that a bad name is reported at once. */
static int open_sink(struct sink *sink, const struct session *s, struct carat_error *err)
{
    const char *path = opt_text(sink->o, OPT_OUTPUT);
    if (!opt_is_set(sink->o, OPT_OUTPUT) || is_standard_output(path)) return CARAT_OK;
    TRY(inputs_protect(sink->o, buf_text(&s->path), path, err));
    bool is_json = opt_is_set(sink->o, OPT_JSON);
    return file_writer_open(&sink->writer, path, is_json ? WRITE_WHOLE : WRITE_TEXT, err);
}

/* An interrupted answer is kept as far as it came; if nothing came the old file stays. */
static int close_sink(struct sink *sink, const struct answer *answer, int status,
                      struct carat_error *err)
{
    bool is_stopped = answer->end == ANSWER_INTERRUPTED && answer->n_generated == 0;
    if (status == CARAT_OK && is_stopped) file_writer_drop(&sink->writer);
    return file_writer_close(&sink->writer, status, err);
}

static void print_stats(const struct session *s, const struct answer *a, uint64_t seed)
{
    char stats[256];
    struct buf setup = {0};
    answer_stats(a, stats, sizeof stats);
    session_add_setup(s, &setup);
    err_printf("carat: %s, seed %llu, %s\n", stats, (unsigned long long)seed, buf_text(&setup));
    buf_deinit(&setup);
}

/* What a conversation, or a prompt without a template, would ignore. */
static int check_flags(const struct options *o, bool is_talk, struct carat_error *err)
{
    static const enum option_id of_prompt[] = {OPT_RAW,    OPT_TOOLS,         OPT_JSON,
                                               OPT_OUTPUT, OPT_SHOW_THINKING, OPT_PROFILE};
    static const enum option_id of_template[] = {OPT_SYSTEM, OPT_SYSTEM_FILE, OPT_TOOLS};
    char option[64];
    if (is_talk &&
        option_flag(o, of_prompt, sizeof of_prompt / sizeof *of_prompt, option, sizeof option)) {
        err_set(err, CARAT_EUSAGE, "run: %s is for one prompt, not for a conversation", option);
        err_hint(err, "give a prompt, and leave out --conversation");
        return CARAT_EUSAGE;
    }
    if (!is_talk && opt_is_set(o, OPT_RAW) &&
        option_flag(o, of_template, sizeof of_template / sizeof *of_template, option,
                    sizeof option)) {
        err_set(err, CARAT_EUSAGE, "run: --raw and %s exclude each other", option);
        err_hint(err, "--raw sends the prompt as it is, without the chat template that has these");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

int command_run(const struct options *o)
{
    struct session s = {0};
    struct carat_error err = {0};
    bool has_prompt = o->n_arguments > first_argument_is_model(o) || opt_is_set(o, OPT_PROMPT) ||
                      opt_is_set(o, OPT_PROMPT_FILE);
    bool is_talk = opt_is_set(o, OPT_CONVERSATION) || (!has_prompt && isatty(STDIN_FILENO));
    is_talk = is_talk && !opt_is_set(o, OPT_REQUEST);
    if (check_flags(o, is_talk, &err) != CARAT_OK) return report(&err);
    if (is_talk) return command_chat(o);

    struct asked *asked = mem_alloc(1, sizeof *asked);
    struct answer answer = {0};
    struct sink sink = {.o = o, .err = &err};
    int status = asked ? CARAT_OK : err_no_memory(&err, "options", sizeof *asked);
    if (status == CARAT_OK) status = session_find(&s, o, &err);
    if (status == CARAT_OK) status = prompt_cache_check(o, &err);
    if (status == CARAT_OK) status = open_sink(&sink, &s, &err);
    if (status == CARAT_OK) status = session_load(&s, &err);
    if (status == CARAT_OK) status = answer_once(o, &s, asked, &sink, &answer, &err);
    status = close_sink(&sink, &answer, status, &err);
    if (status == CARAT_OK && (opt_is_set(o, OPT_STATS) || opt_is_set(o, OPT_VERBOSE)))
        print_stats(&s, &answer, asked->generation.sampling.seed);
    answer_deinit(&answer);
    asked_close(asked);
    session_close(&s);
    if (status != CARAT_OK) return report(&err);
    return interrupt_wanted() ? EXIT_INTERRUPTED : 0;
}
