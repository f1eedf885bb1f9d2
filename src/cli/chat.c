/* carat chat: a conversation at the terminal. Every turn renders the whole conversation anew; the
 * engine reads what it has not read before. What the model thought is not kept. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "carat.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/file_writer.h"
#include "cli/files.h"
#include "cli/form.h"
#include "cli/generate.h"
#include "cli/inputs.h"
#include "json/json_tree.h"
#include "cli/line_reader.h"
#include "cli/prompt_cache.h"
#include "cli/session.h"
#include "cli/settings.h"
#include "cli/signals.h"
#include "cli/terminal.h"

struct chat {
    const struct options *options; /* of the command line */
    struct session session;
    struct conversation talk;
    struct generation generation;
    struct stop_list stops;
    struct form form; /* of all answers */
    struct line_reader *reader;
    struct buf line, message, pending; /* pending: files read, sent before the next message */
    bool hides_thinking, prints_stats, is_single_turn, is_over;
    char last; /* last byte of the answer shown */
};

static bool show(void *user, enum carat_part_kind kind, const char *text, size_t length)
{
    struct chat *chat = user;
    if (kind == CARAT_PART_THINKING) {
        if (!chat->hides_thinking) err_thought(text, length);
        return true;
    }
    err_thought_end();
    chat->last = text[length - 1];
    return out_answer_text(text, length);
}

/* The grammar depends on whether the model thinks, which the user may change between answers. */
static int generate_answer(struct chat *chat, struct answer *a, struct carat_error *err)
{
    const struct carat_value *request = conversation_request(&chat->talk);
    carat_grammar *grammar = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    TRY(carat_chat_tokenize(chat->session.model, request, &ids, &n, err));
    int status = form_open_grammar(&chat->form, chat->session.model, request, &grammar, err);
    chat->generation.grammar = grammar;
    if (status == CARAT_OK)
        status = generate(&chat->session, &chat->generation, ids, n, show, chat, a, err);
    carat_grammar_close(grammar);
    carat_free(ids);
    return status;
}

/* Answers the last message and adds the answer, even a cut one. On failure adds nothing. */
static int answer(struct chat *chat, struct carat_error *err)
{
    struct answer a = {0};
    chat->last = '\n';
    int status = generate_answer(chat, &a, err);
    err_thought_end();
    if (chat->last != '\n') out_text("\n");
    out_flush();
    if (status == CARAT_ECONTEXT)
        err_hint(err, "/undo forgets the question before and its answer, /clear everything; "
                      "a larger context: -c");
    if (status == CARAT_OK)
        status = conversation_add(&chat->talk, "assistant", buf_text(&a.text), a.text.length, err);
    if (status == CARAT_OK && a.end == ANSWER_INTERRUPTED) note("stopped");
    if (status == CARAT_OK && a.end == ANSWER_LENGTH)
        note("cut: the limit of tokens was reached%s",
             a.is_cut_in_thought ? " inside a thought" : "");
    if (status == CARAT_OK && a.end == ANSWER_CONTEXT)
        note("cut: the context of %d positions is full; /undo or /clear makes room",
             carat_engine_memory(chat->session.engine)->n_ctx);
    if (status == CARAT_OK && chat->prints_stats) {
        char stats[256];
        answer_stats(&a, stats, sizeof stats);
        err_printf("%s\n", stats);
    }
    answer_deinit(&a);
    return status;
}

/* What was read stays for the next message when this one fails. */
static int send(struct chat *chat, const char *text, size_t length, struct carat_error *err)
{
    struct buf whole = {0};
    buf_add(&whole, buf_text(&chat->pending), chat->pending.length);
    buf_add(&whole, text, length);
    size_t before = chat->talk.n;
    int status = whole.failed
                     ? err_no_memory(err, "message", length)
                     : conversation_add(&chat->talk, "user", buf_text(&whole), whole.length, err);
    buf_deinit(&whole);
    if (status == CARAT_OK) status = answer(chat, err);
    if (status == CARAT_OK)
        buf_clear(&chat->pending);
    else
        conversation_cut(&chat->talk, before);
    return status;
}

/* ---- Commands --------------------------------------------------------------------------- */

typedef int (*chat_fn)(struct chat *chat, const char *rest, struct carat_error *err);

static int do_exit(struct chat *chat, const char *rest, struct carat_error *err)
{
    (void)rest;
    (void)err;
    chat->is_over = true;
    return CARAT_OK;
}

static int do_clear(struct chat *chat, const char *rest, struct carat_error *err)
{
    (void)rest;
    (void)err;
    conversation_cut(&chat->talk, conversation_has_system(&chat->talk) ? 1 : 0);
    buf_clear(&chat->pending);
    note("a new conversation");
    return CARAT_OK;
}

static int do_system(struct chat *chat, const char *rest, struct carat_error *err)
{
    TRY(conversation_set_system(&chat->talk, rest, err));
    note(rest[0] ? "system prompt set" : "system prompt removed");
    return CARAT_OK;
}

/* Drops the last user message and what followed; false when there is none. */
static bool undo(struct chat *chat)
{
    size_t n = chat->talk.n;
    while (n > 0 && strcmp(chat->talk.messages[n - 1].role, "user") != 0) n--;
    if (n == 0) return false;
    conversation_cut(&chat->talk, n - 1);
    return true;
}

static int do_undo(struct chat *chat, const char *rest, struct carat_error *err)
{
    (void)rest;
    if (!undo(chat)) return err_set(err, CARAT_EUSAGE, "/undo: nothing has been said yet");
    note("the last question and its answer are forgotten; %zu messages are left", chat->talk.n);
    return CARAT_OK;
}

static int do_regen(struct chat *chat, const char *rest, struct carat_error *err)
{
    (void)rest;
    size_t n = chat->talk.n;
    while (n > 0 && strcmp(chat->talk.messages[n - 1].role, "user") != 0) n--;
    if (n == 0) return err_set(err, CARAT_EUSAGE, "/regen: nothing has been asked yet");
    conversation_cut(&chat->talk, n);
    chat->generation.sampling.seed++;
    return answer(chat, err);
}

static int do_think(struct chat *chat, const char *rest, struct carat_error *err)
{
    if (strcmp(rest, "on") == 0 || strcmp(rest, "off") == 0)
        chat->talk.thinks = rest[1] == 'n';
    else if (strcmp(rest, "hide") == 0 || strcmp(rest, "show") == 0)
        chat->hides_thinking = rest[0] == 'h';
    else if (rest[0])
        return err_set(err, CARAT_EUSAGE, "/think: on, off, hide or show is expected");
    note("thinking is %s, thoughts are %s", chat->talk.thinks ? "on" : "off",
         chat->hides_thinking ? "hidden" : "shown");
    return CARAT_OK;
}

static int do_stats(struct chat *chat, const char *rest, struct carat_error *err)
{
    (void)rest;
    (void)err;
    chat->prints_stats = !chat->prints_stats;
    note("timings are %s", chat->prints_stats ? "printed" : "not printed");
    return CARAT_OK;
}

static int do_read(struct chat *chat, const char *rest, struct carat_error *err)
{
    if (!rest[0]) return err_set(err, CARAT_EUSAGE, "/read: a file name is expected");
    size_t before = chat->pending.length;
    TRY(file_read(rest, &chat->pending, err));
    note("%s: %zu bytes, sent with your next message", rest, chat->pending.length - before);
    buf_add_text(&chat->pending, "\n\n");
    return CARAT_OK;
}

static int do_set(struct chat *chat, const char *rest, struct carat_error *err)
{
    if (rest[0]) TRY(settings_set(&chat->generation, &chat->stops, rest, chat->session.model, err));
    settings_print(&chat->generation);
    return CARAT_OK;
}

static int do_save(struct chat *chat, const char *rest, struct carat_error *err)
{
    if (!rest[0]) return err_set(err, CARAT_EUSAGE, "/save: a file name is expected");
    struct buf b = {0};
    struct json j = {.out = &b};
    json_begin_object(&j);
    json_key_array(&j, "messages");
    for (size_t i = 0; i < chat->talk.n; i++) {
        const struct message *m = &chat->talk.messages[i];
        json_begin_object(&j);
        json_key_string(&j, "role", m->role);
        json_key_text(&j, "content", m->text, m->length);
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
    buf_add_char(&b, '\n');
    struct file_writer w;
    int status = inputs_protect(chat->options, buf_text(&chat->session.path), rest, err);
    if (status == CARAT_OK) status = file_writer_open(&w, rest, WRITE_WHOLE, err);
    if (status == CARAT_OK) {
        status = file_writer_add(&w, buf_text(&b), b.length, err);
        status = file_writer_close(&w, status, err);
    }
    buf_deinit(&b);
    if (status == CARAT_OK) note("%zu messages saved in %s", chat->talk.n, rest);
    return status;
}

static int load_messages(struct conversation *talk, const struct carat_value *messages,
                         struct carat_error *err)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < messages->as.array.count; i++) {
        const struct carat_value *m = &messages->as.array.items[i];
        const struct carat_value *role = json_member(m, "role"), *text = json_member(m, "content");
        const char *known = NULL;
        for (size_t k = 0; k < 3 && role->kind == CARAT_STRING; k++)
            if (strcmp(role->as.string.data, roles[k]) == 0) known = roles[k];
        if (!known || text->kind != CARAT_STRING)
            return err_set(err, CARAT_EUSAGE, "messages[%zu]: a role and a text are expected", i);
        TRY(conversation_add(talk, known, text->as.string.data, text->as.string.length, err));
    }
    return CARAT_OK;
}

static int do_load(struct chat *chat, const char *rest, struct carat_error *err)
{
    if (!rest[0]) return err_set(err, CARAT_EUSAGE, "/load: a file name is expected");
    struct buf text = {0};
    struct json_tree tree = {0};
    struct conversation talk = {0};
    int status = file_read(rest, &text, err);
    if (status == CARAT_OK)
        status = json_tree_read(&tree, buf_text(&text), text.length, JSON_CHAT_REQUEST, err);
    const struct carat_value *messages = json_member(&tree.root, "messages");
    if (status == CARAT_OK && messages->kind != CARAT_ARRAY)
        status = err_set(err, CARAT_EUSAGE, "%s: \"messages\" is missing", rest);
    if (status == CARAT_OK) status = conversation_open(&talk, err);
    if (status == CARAT_OK) status = load_messages(&talk, messages, err);
    if (status == CARAT_OK) {
        talk.thinks = chat->talk.thinks;
        talk.form = chat->talk.form;
        conversation_close(&chat->talk);
        chat->talk = talk;
        note("%zu messages loaded", talk.n);
    } else {
        conversation_close(&talk);
    }
    json_tree_free(&tree);
    buf_deinit(&text);
    return status;
}

static int do_help(struct chat *chat, const char *rest, struct carat_error *err);

static const struct {
    const char *name, *arguments, *help;
    chat_fn run;
} commands[] = {
    {"/help", "", "this list", do_help},
    {"/set", "[NAME VALUE]", "show or change sampling, penalties and stop strings", do_set},
    {"/system", "[TEXT]", "set or remove the system prompt", do_system},
    {"/clear", "", "start a new conversation", do_clear},
    {"/regen", "", "answer the last message again", do_regen},
    {"/undo", "", "forget the last message and its answer", do_undo},
    {"/save", "FILE", "write the conversation as JSON", do_save},
    {"/load", "FILE", "read one back", do_load},
    {"/read", "FILE", "send the content of a file with the next message", do_read},
    {"/think", "on|off|hide|show", "let the model think; show its thoughts", do_think},
    {"/stats", "", "print timings after every answer, or not", do_stats},
    {"/exit", "", "leave (also Ctrl-D)", do_exit},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int do_help(struct chat *chat, const char *rest, struct carat_error *err)
{
    (void)chat;
    (void)rest;
    (void)err;
    for (size_t i = 0; i < N_COMMANDS; i++)
        err_printf("  %-8s %-18s %s\n", commands[i].name, commands[i].arguments, commands[i].help);
    err_printf("  \"\"\"                         begins and ends a message of several lines\n"
               "  Alt-Enter                   begins another line\n"
               "  /set NAME:");
    for (size_t i = 0; settings_name(i); i++) err_printf(" %s", settings_name(i));
    err_printf("\n");
    return CARAT_OK;
}

/* Tab: commands, and what may follow them as their `arguments` say. */
static void complete_line(void *user, const char *line, size_t length, struct completions *out)
{
    (void)user;
    if (length == 0 || line[0] != '/' || memchr(line, '\n', length)) return;
    out->is_text = false;
    const char *blank = memchr(line, ' ', length);
    size_t n = blank ? (size_t)(blank - line) : length;
    out->begin = blank ? n + 1 : 0;
    const char *typed = line + out->begin, *at = NULL;
    size_t n_typed = length - out->begin;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const char *name = commands[i].name;
        if (!blank) completions_add(out, typed, n_typed, name);
        if (blank && strlen(name) == n && memcmp(name, line, n) == 0) at = commands[i].arguments;
    }
    out->has_blank = !at;
    if (!at) return;
    if (strcmp(at, "FILE") == 0) completions_add_files(out, typed, n_typed);
    out->has_blank = at[0] == '[';
    for (size_t i = 0; strcmp(at, "[NAME VALUE]") == 0 && settings_name(i); i++)
        completions_add(out, typed, n_typed, settings_name(i));
    while (strchr(at, '|')) {
        char word[16];
        size_t n_word = strcspn(at, "|");
        snprintf(word, sizeof word, "%.*s", (int)n_word, at);
        completions_add(out, typed, n_typed, word);
        at += n_word + (at[n_word] == '|');
        if (!strchr(at, '|')) completions_add(out, typed, n_typed, at);
    }
}

static int run_chat_command(struct chat *chat, const char *line, struct carat_error *err)
{
    size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    if (n == 5 && strncmp(line, "/quit", 5) == 0) return do_exit(chat, rest, err);
    if (n == 4 && strncmp(line, "/bye", 4) == 0) return do_exit(chat, rest, err);
    if (n == 2 && strncmp(line, "/?", 2) == 0) return do_help(chat, rest, err);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == n && strncmp(commands[i].name, line, n) == 0)
            return commands[i].run(chat, rest, err);
    err_set(err, CARAT_EUSAGE, "%.*s: no such command", (int)n, line);
    err_hint(err, "/help lists them; begin a message with a blank to send it as it is");
    return CARAT_EUSAGE;
}

/* ---- Loop ------------------------------------------------------------------------------- */

static bool ends_block(const struct buf *b)
{
    return b->length >= 3 && memcmp(b->data + b->length - 3, "\"\"\"", 3) == 0;
}

/* Reads a message: one line, or a block from """ to """. Ctrl-D ends a block too, and Ctrl-C on an
 * empty line of it drops it. */
static enum line_end read_message(struct chat *chat)
{
    struct buf *message = &chat->message, *line = &chat->line;
    enum line_end end = line_reader_next(chat->reader, "> ", line);
    buf_clear(message);
    if (end != LINE_READ) return end;
    bool is_block = strncmp(buf_text(line), "\"\"\"", 3) == 0;
    size_t skipped = is_block ? 3 : 0;
    buf_add(message, buf_text(line) + skipped, line->length - skipped);
    while (is_block && !ends_block(message)) {
        end = line_reader_next(chat->reader, ". ", line);
        if (end != LINE_READ && out_is_terminal()) out_text("\n");
        if (end == LINE_INTERRUPTED) {
            note("the block is dropped");
            buf_clear(message);
            return LINE_READ;
        }
        if (end == LINE_EOF) break;
        buf_add_char(message, '\n');
        buf_add(message, buf_text(line), line->length);
    }
    if (is_block && end == LINE_READ) message->data[message->length -= 3] = '\0';
    line_reader_remember(chat->reader, buf_text(message), message->length);
    return LINE_READ;
}

static bool is_blank(const struct buf *b)
{
    size_t i = 0;
    while (i < b->length && strchr(" \t\n", b->data[i]) && b->data[i]) i++;
    return i == b->length;
}

/* The first message, of `run --conversation` with the arguments after MODEL. What does not fit the
 * context is refused when it is sent. */
static int send_first(struct chat *chat, const struct options *o, struct carat_error *err)
{
    struct buf text = {0};
    int status = prompt_given(o, chat->session.next_argument, "\n\n", SIZE_MAX, &text, err);
    if (status == CARAT_OK && text.failed) status = err_no_memory(err, "prompt", text.length);
    if (status == CARAT_OK && text.length) status = send(chat, buf_text(&text), text.length, err);
    chat->is_over = text.length && chat->is_single_turn;
    buf_deinit(&text);
    return status;
}

/* Ends the line, so that the shell's prompt begins a new one. */
static int leave(int exit_status)
{
    if (out_is_terminal()) out_text("\n");
    return exit_status;
}

/* Returns the exit status. A person has seen what failed; who wrote into a pipe gets the status of
 * the last failure. */
static int talk(struct chat *chat)
{
    int interrupts = 0, failure = 0;
    while (!chat->is_over) {
        struct carat_error err = {0};
        enum line_end end = read_message(chat);
        if (end == LINE_EOF) break;
        if (end == LINE_INTERRUPTED) {
            if (out_is_terminal()) out_text("\n");
            if (++interrupts > 1) return EXIT_INTERRUPTED;
            out_flush();
            note("Ctrl-C again, Ctrl-D or /exit leaves");
            continue;
        }
        interrupts = 0;
        if (is_blank(&chat->message)) continue;
        const char *text = buf_text(&chat->message);
        bool is_command = text[0] == '/';
        int status = is_command ? run_chat_command(chat, text, &err)
                                : send(chat, text, chat->message.length, &err);
        int exit_status = status == CARAT_OK ? 0 : report(&err);
        if (chat->is_single_turn && !is_command) return leave(exit_status);
        if (exit_status && !isatty(STDIN_FILENO)) failure = exit_status;
        if (!out_flush()) break; /* main says why */
    }
    return leave(failure);
}

static int open_reader(struct chat *chat, const struct options *o, struct carat_error *err)
{
    struct buf path = {0};
    struct carat_error unknown = {0};
    const char *history = NULL;
    bool wants_history = !opt_is_set(o, OPT_NO_HISTORY) && isatty(STDIN_FILENO);
    if (wants_history && state_path("history", &path, &unknown) == CARAT_OK)
        history = buf_text(&path);
    else if (wants_history)
        note("lines are not kept for the next time: %s", unknown.message);
    int status = line_reader_open(&chat->reader, history, err);
    buf_deinit(&path);
    return status;
}

/* A form that cannot be kept is reported before anything is typed. */
static int open_form(struct chat *chat, const struct options *o, struct carat_error *err)
{
    carat_grammar *grammar;
    TRY(form_read(&chat->form, o, err));
    if (!chat->form.is_set) return CARAT_OK;
    chat->talk.form = &chat->form.member;
    TRY(form_open_grammar(&chat->form, chat->session.model, conversation_request(&chat->talk),
                          &grammar, err));
    carat_grammar_close(grammar);
    return CARAT_OK;
}

int command_chat(const struct options *o)
{
    struct carat_error err = {0};
    int exit_status = 0;
    struct chat *chat = mem_alloc(1, sizeof *chat);
    if (!chat) {
        err_no_memory(&err, "chat", sizeof *chat);
        return report(&err);
    }
    chat->options = o;
    int status = prompt_cache_check(o, &err);
    if (status == CARAT_OK) status = session_open(&chat->session, o, &err);
    if (status == CARAT_OK && o->command == COMMAND_CHAT)
        status = no_more_arguments(o, chat->session.next_argument, &err);
    if (status == CARAT_OK)
        status = generation_read(&chat->generation, o, chat->session.model, &err);
    if (status == CARAT_OK) status = settings_open(&chat->stops, &chat->generation, &err);
    if (status == CARAT_OK) status = conversation_open(&chat->talk, &err);
    if (status == CARAT_OK) status = conversation_configure(&chat->talk, o, &err);
    if (status == CARAT_OK) status = open_form(chat, o, &err);
    struct carat_engine_options options = engine_options(o);
    if (status == CARAT_OK) status = session_start(&chat->session, &options, &err);
    if (status == CARAT_OK) status = prompt_cache_load(o, chat->session.engine, &err);
    if (status == CARAT_OK) status = open_reader(chat, o, &err);
    if (status == CARAT_OK) {
        chat->is_single_turn = opt_is_set(o, OPT_SINGLE_TURN);
        chat->prints_stats = opt_is_set(o, OPT_STATS) || opt_is_set(o, OPT_VERBOSE);
        chat->hides_thinking = opt_is_set(o, OPT_HIDE_THINKING);
        note("%s, %d positions; /help lists the commands", buf_text(&chat->session.path),
             carat_engine_memory(chat->session.engine)->n_ctx);
        line_reader_set_completion(chat->reader, complete_line, chat);
        if (!opt_is_set(o, OPT_THINK)) note("thinking is off; /think on switches it on");
        status = send_first(chat, o, &err);
        if (status == CARAT_OK) exit_status = talk(chat);
        line_reader_close(chat->reader);
        if (status == CARAT_OK) status = prompt_cache_save(o, chat->session.engine, &err);
    }
    conversation_close(&chat->talk);
    settings_close(&chat->stops);
    buf_deinit(&chat->line);
    buf_deinit(&chat->message);
    buf_deinit(&chat->pending);
    form_close(&chat->form);
    session_close(&chat->session);
    mem_free(chat);
    return status == CARAT_OK ? exit_status : report(&err);
}
