/* carat: the program. Finds the command, reads its options, runs it, and turns what is left in
 * the output buffers into the exit status. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/signals.h"
#include "cli/terminal.h"

typedef int (*command_fn)(const struct options *o);

static command_fn const functions[COMMAND_COUNT] = {
#define X(id, name, arguments, summary) [COMMAND_##id] = command_##name,
    COMMAND_LIST(X)
#undef X
};

static int unknown_command(const char *word)
{
    struct carat_error err = {0};
    const char *nearest = command_nearest(word);
    err_set(&err, CARAT_EUSAGE, "unknown command %s", word);
    if (nearest)
        err_hint(&err, "did you mean `carat %s`? `carat help` lists the commands", nearest);
    else
        err_hint(&err, "`carat help` lists the commands");
    return report(&err);
}

static int run_command(enum command_id command, int argc, char *const *argv)
{
    struct options options;
    struct carat_error err = {0};
    int status = options_parse(&options, command, argc, argv, &err);
    int exit_status;
    if (status != CARAT_OK) {
        exit_status = report(&err);
    } else if (opt_is_set(&options, OPT_HELP)) {
        help_command(command);
        exit_status = 0;
    } else {
        terminal_set_quiet(opt_is_set(&options, OPT_QUIET));
        exit_status = functions[command](&options);
    }
    options_deinit(&options);
    return exit_status;
}

int main(int argc, char **argv)
{
    /* Line editing counts characters, which are UTF-8 here also where no language was chosen.
     * Numbers stay in the C form. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    terminal_open();
    signals_open();
    if (argc < 2) {
        help_overview(stderr);
        return 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) word = "help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) word = "version";
    enum command_id command = command_find(word);
    int exit_status = command == COMMAND_COUNT ? unknown_command(word)
                                               : run_command(command, argc - 2, argv + 2);
    return out_finish(exit_status);
}
