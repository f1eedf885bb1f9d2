/* What registries answer, as JSON: lists of files, commits, manifests. Whatever does not fit the
 * form is CARAT_ENETWORK with the member's name. Any bytes may come. */
#ifndef HUB_ANSWERS_H
#define HUB_ANSWERS_H

#include <stddef.h>

#include "hub/files.h"

enum { HUB_COMMIT_HEX = 40 };

/* Adds the .gguf files of a page of Hugging Face's tree API; others are skipped unread. A path that
 * is absolute, has ".." or control characters is refused. */
int hub_tree_read(const char *text, size_t length, struct hub_files *files,
                  struct carat_error *err);

/* The commit that a revision of Hugging Face stands for. */
int hub_commit_read(const char *text, size_t length, char commit[HUB_COMMIT_HEX + 1],
                    struct carat_error *err);

/* Adds the one layer of an ollama manifest that holds the model, with the path `path`. */
int ollama_manifest_read(const char *text, size_t length, const char *path, struct hub_files *files,
                         struct carat_error *err);

#endif
