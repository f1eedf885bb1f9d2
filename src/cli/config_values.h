/* What the config file says about the options of a command. */
#ifndef CLI_CONFIG_VALUES_H
#define CLI_CONFIG_VALUES_H

#include "base/status.h"
#include "cli/options.h"

/* Gives options that neither a flag nor the environment gave the values of the config file: of the
 * section of the command's model, else of [default]. After options_parse, before anything else.
 *
 * The file is the one of --config, else the first that is there of $XDG_CONFIG_HOME/carat/config
 * (default ~/.config/carat/config) and /etc/carat/config. CARAT_EUSAGE names file and line: a key
 * that no option has, a value that its option does not take. */
int config_values_read(struct options *o, struct carat_error *err);

/* A misspelled variable would silently change nothing: this names it on standard error. */
void note_unknown_variables(void);

#endif
