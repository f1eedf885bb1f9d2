/* Explanations made from the tables. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "cli/command_list.h"

void help_overview(FILE *out);
void help_command(enum command_id command); /* to standard output */

#endif
