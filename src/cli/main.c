/* carat: the program. Finds the command, reads its options, runs it, and turns what is left in
 * the output buffers into the exit status. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/command.h"
#include "cli/config_values.h"
#include "cli/help.h"
#include "cli/session.h"
#include "cli/signals.h"
#include "cli/terminal.h"

typedef int (*command_fn)(const struct options *o);

static command_fn const functions[COMMAND_COUNT] = {
#define X(id, name, arguments, summary) [COMMAND_##id] = command_##name,
    COMMAND_LIST(X)
#undef X
};

/* ---- Which command ---------------------------------------------------------------------- */

static const struct borrowed_command {
    const char *word;
    enum command_id command; /* or COMMAND_NONE, COMMAND_ALONE */
    const char *flags, *why;
} borrowed_commands[] = {
#define Z(word, command, flags, why) {word, COMMAND_##command, flags, why},
    BORROWED_COMMAND_LIST(Z)
#undef Z
};

static const struct borrowed_command *find_borrowed(const char *word)
{
    for (size_t i = 0; i < sizeof borrowed_commands / sizeof *borrowed_commands; i++)
        if (strcmp(borrowed_commands[i].word, word) == 0) return &borrowed_commands[i];
    return NULL;
}

static int unknown_command(const char *word)
{
    struct carat_error err = {0};
    const struct borrowed_command *known = find_borrowed(word);
    const char *nearest = command_nearest(word), *dot = strrchr(word, '.');
    err_set(&err, CARAT_EUSAGE, known ? "%s is not supported" : "unknown command %s", word);
    if (known)
        err_hint(&err, "%s", known->why);
    else if (dot && strcmp(dot, ".gguf") == 0)
        err_hint(&err, "carat run %s, or carat chat %s", word, word);
    else if (nearest)
        err_hint(&err, "did you mean `carat %s`? `carat help` lists the commands", nearest);
    else
        err_hint(&err, "`carat help` lists the commands");
    return report(&err);
}

static void note_ignored(const struct options *o)
{
    struct buf text = {0};
    for (size_t i = 0; i < o->n_ignored; i++)
        buf_printf(&text, "%s%.*s", i ? ", " : "", (int)o->ignored[i].length, o->ignored[i].word);
    if (o->n_ignored) note("ignored, because it changes nothing here: %s", buf_text(&text));
    buf_deinit(&text);
}

static int run_command(enum command_id command, int argc, char *const *argv)
{
    struct options options;
    struct carat_error err = {0};
    int status = options_parse(&options, command, argc, argv, &err);
    bool is_asked = status == CARAT_OK && opt_is_set(&options, OPT_HELP);
    if (status == CARAT_OK && !is_asked) status = config_values_read(&options, &err);
    if (status == CARAT_OK && !is_asked) status = check_options(&options, &err);
    int exit_status;
    if (status != CARAT_OK) {
        exit_status = report(&err);
    } else if (opt_is_set(&options, OPT_HELP)) {
        help_command(command);
        exit_status = 0;
    } else {
        terminal_set_quiet(opt_is_set(&options, OPT_QUIET));
        terminal_set_wrap(!opt_is_set(&options, OPT_NO_WRAP));
        note_ignored(&options);
        exit_status = functions[command](&options);
    }
    options_deinit(&options);
    return exit_status;
}

/* The same with flags, separated by blanks, before the arguments. */
static int run_with_flags(enum command_id command, const char *flags, int argc, char *const *argv)
{
    enum { FLAGS_MAX = 4 };
    char words[FLAGS_MAX][32];
    char **all = mem_alloc((size_t)argc + FLAGS_MAX, sizeof *all);
    struct carat_error err = {0};
    if (!all) {
        err_no_memory(&err, "arguments", (size_t)argc * sizeof *all);
        return report(&err);
    }
    int n = 0;
    for (const char *at = flags; n < FLAGS_MAX && sscanf(at, "%31s", words[n]) == 1; n++) {
        all[n] = words[n];
        at += strlen(words[n]);
        at += strspn(at, " ");
    }
    for (int i = 0; i < argc; i++) all[n + i] = argv[i];
    int exit_status = run_command(command, n + argc, all);
    mem_free(all);
    return exit_status;
}

static bool is_alone(const char *word)
{
    const struct borrowed_command *borrowed = find_borrowed(word);
    return borrowed && borrowed->command == COMMAND_ALONE;
}

/* The command that a flag in its place stands for, or NULL. */
static const char *command_of_flag(const char *word)
{
    static const struct {
        const char *flag, *command;
    } flags[] = {
        {"--help", "help"},
        {"-h", "help"},
        {"--list-devices", "devices"},
        {"--version", "version"},
        {"-V", "version"},
        {"--cache-list", "ls"},
        {"-cl", "ls"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(word, flags[i].flag) == 0) return flags[i].command;
    return NULL;
}

/* Runs a line that begins with a word of another program. */
static int run_borrowed(const struct borrowed_command *borrowed, int n, char *const *words)
{
    const char *asked = n > 1 ? command_of_flag(words[1]) : NULL;
    if (borrowed->command == COMMAND_NONE) return unknown_command(words[0]);
    if (borrowed->command == COMMAND_ALONE) {
        help_overview(stderr);
        return 2;
    }
    if (asked && strcmp(asked, "help") != 0) return run_command(command_find(asked), 0, NULL);
    return run_with_flags(borrowed->command, borrowed->flags, n - 1, words + 1);
}

/* `words` begin with the command, or are a line without one: a prompt for `run`. */
static int run_line(int n, char *const *words)
{
    while (n > 1 && is_alone(words[0])) {
        words++;
        n--;
    }
    const char *named = command_of_flag(words[0]), *word = named ? named : words[0];
    if (word[0] == '-') return run_command(COMMAND_RUN, n, words);
    enum command_id command = command_find(word);
    const struct borrowed_command *borrowed = find_borrowed(word);
    if (command != COMMAND_COUNT) return run_command(command, n - 1, words + 1);
    return borrowed ? run_borrowed(borrowed, n, words) : unknown_command(word);
}

int main(int argc, char **argv)
{
    /* Line editing counts characters, so UTF-8 must hold even without a chosen language. Numbers
     * stay in the C form. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    terminal_open();
    signals_open();
    char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    if (slash && find_borrowed(slash + 1)) argv[0] = slash + 1;
    bool is_link = argc > 0 && find_borrowed(argv[0]); /* a link to carat: llama-cli, ollama */
    if (argc < 2 && !is_link) {
        help_overview(stderr);
        return 2;
    }
    return out_finish(is_link ? run_line(argc, argv) : run_line(argc - 1, argv + 1));
}
