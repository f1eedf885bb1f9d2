/* The drafter of a model, found without being named. */
#ifndef CLI_DRAFTERS_H
#define CLI_DRAFTERS_H

#include "base/buf.h"
#include "carat.h"
#include "cli/options.h"

/* Opens the first file that is a drafter of the model, in the order of hub_compare_drafters: of
 * those in the model's folder, in a folder MTP there or next to it; else that of the model's
 * repository. `path`: the model's file; `name`: how it was asked for. The repository's may be
 * offered as model_get does. A note says which was taken, or why none was; *out is NULL then.
 * Fails only if there is no memory. */
int drafter_find(const struct options *o, const char *path, const char *name,
                 const carat_model *model, carat_drafter **out, struct carat_error *err);

/* hf:USER/REPO[:QUANT] -> hf:USER/REPO:MTP[-QUANT]; false: it is no such name. */
bool drafter_name(const char *name, struct buf *out);

#endif
