/* --prompt-cache FILE: what was read in earlier runs. */
#ifndef CLI_PROMPT_CACHE_H
#define CLI_PROMPT_CACHE_H

#include "carat.h"
#include "cli/options.h"

/* Before anything is loaded: whether the file could be written at the end. Without the option all
 * of these do nothing. */
int prompt_cache_check(const struct options *o, struct carat_error *err);

/* A file that is damaged, or of another model or setting, is passed over with a note. */
int prompt_cache_load(const struct options *o, carat_engine *engine, struct carat_error *err);
int prompt_cache_save(const struct options *o, carat_engine *engine, struct carat_error *err);

#endif
