/* Where models are found: the one place of look-up. */
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "hub/name.h"
#include "hub/store.h"

/* Calls `visit` with each folder in which names are looked up, in order, until it returns true.
 * Returns its last result. A folder may come twice, under two names, and need not exist. */
typedef bool (*folder_fn)(void *user, const char *folder);
bool models_each_folder(folder_fn visit, void *user);

/* The same with each store of downloaded models: those folders, Hugging Face's cache, ollama's
 * store. `only`: this folder alone; "": all. */
typedef bool (*models_store_fn)(void *user, const struct store *store);
bool models_each_store(const char *only, models_store_fn visit, void *user);

/* The store that pull fills if no other is named. CARAT_EIO: there is no home folder. */
int models_own_store(struct buf *out, struct carat_error *err);

/* Finds a model by path or name, also one that was downloaded. CARAT_EFORMAT names the places
 * looked at; CARAT_EUSAGE: it begins as a name of a registry but goes on wrongly. */
int model_find(const char *name, struct buf *path, struct carat_error *err);

/* Whether a word names a model, and not just any file. */
bool model_is_named(const char *word);

/* The registry's name that a text means: what hub_name_read reads, or NAME[:TAG] of ollama's
 * registry. CARAT_EUSAGE: it can be none. */
int model_hub_name(const char *text, struct hub_name *out, struct carat_error *err);

#endif
