/* A model from its name to files on the disk. */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include "hub/fetch.h"
#include "hub/files.h"
#include "hub/name.h"

#define HUB_ENDPOINT_HF "https://huggingface.co"
#define HUB_ENDPOINT_OLLAMA "https://registry.ollama.ai"

struct pull_options {     /* borrowed until pull_close; all texts may be "" */
    const char *folder;   /* of the store; not "" */
    const char *endpoint; /* of the name's registry, instead of the public one */
    const char *token;    /* for Hugging Face and its endpoint alone */
    const char *user_agent, *ca_file, *ca_folder;
    int stall_s;
    int connections; /* at most, for one file */
    const struct hub_watch *watch;
};

struct pull {
    struct hub_name name;
    struct pull_options options;
    struct fetch *fetch;
    struct buf endpoint;
    struct hub_files files; /* what is to be loaded: all parts. After CARAT_EUSAGE of pull_open:
                               the models there are to choose from */
    bool has_drafter;       /* the repository has one, besides what is chosen */
    char version[HUB_SHA256_HEX + 1]; /* commit or digest; "": none */
    char folder[13];                  /* the version whose folder has the files */
};

/* Asks the registry which files the name means. CARAT_EUSAGE: there is no such quantisation;
 * CARAT_ENETWORK; CARAT_EBUSY: stopped. To be closed in any case. */
int pull_open(struct pull *p, const struct hub_name *name, const struct pull_options *options,
              struct carat_error *err);

uint64_t pull_bytes_left(const struct pull *p); /* to be loaded; of an address: 0 */
void pull_add_path(const struct pull *p, size_t i, struct buf *out); /* where file i goes */

/* Loads what is not there yet. `verifies`: files that are there are hashed too; one that has the
 * wrong sha256 becomes FILE.bad and is loaded again. */
int pull_run(struct pull *p, bool verifies, struct carat_error *err);

void pull_close(struct pull *p);

#endif
