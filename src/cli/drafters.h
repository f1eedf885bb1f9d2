/* The drafter of a model, by its name or found without one. */
#ifndef CLI_DRAFTERS_H
#define CLI_DRAFTERS_H

#include "base/buf.h"
#include "carat.h"
#include "cli/options.h"
#include "hub/name.h"

/* Appends hf:USER/REPO:MTP[-QUANT], the name of the drafter in a repository of Hugging Face.
 * `quantisation`: "" for any. */
void drafter_add_name(struct buf *out, const struct hub_name *hub, const char *quantisation);

/* Finds the drafter that --model-draft or --hf-repo-draft names, if one does. *is_auto: it is to be
 * found by drafter_find, with the model. */
int drafter_get(const struct options *o, struct buf *path, bool *is_auto, struct carat_error *err);

/* Opens the first file that is a drafter of the model, in the order of hub_compare_drafters: of
 * those in the model's folder, in a folder MTP there or next to it; else that of the model's
 * repository. `path`: the model's file; `name`: how it was asked for. The repository's may be
 * offered as model_get does. A note says which was taken, or why none was; *out is NULL then.
 * Fails only if there is no memory. */
int drafter_find(const struct options *o, const char *path, const char *name,
                 const carat_model *model, carat_drafter **out, struct carat_error *err);

#endif
