/* Where downloaded models lie, in carat's own store and in those of other programs.
 *
 *     STORE/hf/USER/REPO/COMMIT/FILE.gguf             COMMIT: the first 12 digits
 *     STORE/ollama/OWNER/NAME/DIGEST/NAME-TAG.gguf
 *     STORE/url/HOST[:PORT]/PATH.gguf
 *
 * and next to each file its record, FILE.gguf.json. A version that has changed on the server gets a
 * folder of its own, so nothing is replaced. Hugging Face's cache and ollama's store are only
 * read. */
#ifndef HUB_STORE_H
#define HUB_STORE_H

#include <stdbool.h>

#include "base/buf.h"
#include "hub/files.h"
#include "hub/name.h"

enum store_kind { STORE_OWN, STORE_HF_CACHE, STORE_OLLAMA };

struct store {
    enum store_kind kind;
    const char *folder;
};

/* Where a file of that name goes: `version` is a commit or a digest. */
void store_add_path(const char *folder, const struct hub_name *name, const char *version,
                    const char *file, struct buf *out);

/* The folder of all versions of a name, and its versions that are there. */
void store_add_folder(const char *folder, const struct hub_name *name, struct buf *out);

/* Sets *path to the first file of the model, of the newest version that has it whole; "" if there
 * is none. A name without a tag means the default quantisation; with `takes_only`, if a version has
 * a single model, that one. */
bool store_find(const struct store *store, const struct hub_name *name, bool takes_only,
                struct buf *path);

/* Calls `visit` with each whole model and each drafter. `name` is how it can be typed, `path` its
 * first file. */
typedef void (*store_fn)(void *user, const char *name, const char *path, enum store_kind kind);
int store_each(const struct store *store, store_fn visit, void *user, struct carat_error *err);

/* The same with each unfinished download of carat's own store: `name` is what was asked for, `path`
 * that of the part. */
int store_each_part(const struct store *store, store_fn visit, void *user, struct carat_error *err);

#endif
