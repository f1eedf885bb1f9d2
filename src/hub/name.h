/* Names of models that come from a registry, as people type them:
 *
 *     hf:USER/REPO[:QUANT][/file.gguf]     Hugging Face; also hf.co/... and huggingface.co/...
 *     ollama:[USER/]NAME[:TAG]             the registry of ollama
 *     https://HOST/PATH.gguf               any server; pages of Hugging Face become hf: names
 *
 * Every part is checked, so that a path made of it stays below the folder it begins with. */
#ifndef HUB_NAME_H
#define HUB_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"
#include "hub/url.h"

enum hub_kind { HUB_NONE, HUB_HF, HUB_OLLAMA, HUB_URL };

enum { HUB_WORD_MAX = 128, HUB_PATH_MAX = 512 };

struct hub_name {
    enum hub_kind kind;
    char owner[HUB_WORD_MAX];      /* the user; ollama: "library" by default */
    char repository[HUB_WORD_MAX]; /* ollama: the model's name */
    char tag[HUB_WORD_MAX];      /* Hugging Face: quantisation or ""; ollama: "latest" by default */
    char file[HUB_PATH_MAX];     /* Hugging Face: path in the repository, or "" */
    char revision[HUB_WORD_MAX]; /* Hugging Face: branch, tag or commit, or "" */
    char url[URL_MAX];           /* HUB_URL: the whole address */
};

/* CARAT_OK with HUB_NONE: the text is no name of a registry (it may be a file's). CARAT_EUSAGE: it
 * begins as one but goes on wrongly. */
int hub_name_read(const char *text, struct hub_name *out, struct carat_error *err);

/* Appends the name as it can be typed, without its revision and without secrets of an address. */
void hub_name_add(const struct hub_name *name, struct buf *out);

/* Checks a branch, tag or commit and sets it. */
int hub_name_set_revision(struct hub_name *name, const char *revision, struct carat_error *err);

/* A relative path of printable characters without "..", "." or empty parts, shorter than
 * HUB_PATH_MAX. */
bool hub_path_is_safe(const char *path, size_t length);

#endif
