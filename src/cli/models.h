/* Where models are found. */
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

/* Calls `visit` with each folder in which names are looked up, in order, until it returns true.
 * Returns its last result. A folder may come twice, under two names, and need not exist. */
typedef bool (*folder_fn)(void *user, const char *folder);
bool models_each_folder(folder_fn visit, void *user);

/* Finds a model by path or name. CARAT_EFORMAT names the places looked at. */
int model_find(const char *name, struct buf *path, struct carat_error *err);

/* Whether a word names a model, and not just any file. */
bool model_is_named(const char *word);

/* Hints at the command that fetches a file of Hugging Face: "user/repository", perhaps with a
 * quantisation after a colon, or a whole address. */
void hint_download(const char *repository, struct carat_error *err);

#endif
