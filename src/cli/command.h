/* What a subcommand is: a function that does everything and returns the exit status. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "cli/options.h"

#define X(id, name, arguments, summary) int command_##name(const struct options *o);
COMMAND_LIST(X)
#undef X

#endif
