/* What the engines have read, kept in a file while the server is not there (carat.h, "Saved
 * prefixes"): loaded when an engine is open, saved when its last job has ended. */
#ifndef SERVER_PREFIXES_H
#define SERVER_PREFIXES_H

#include "base/hash.h"
#include "carat.h"

struct prefixes_options {
    const char *path; /* NULL: nothing is kept */
    uint64_t bytes_max;
    bool is_read_only; /* the file is not written */
};

/* The secret that salts of requests are made with. The file has that of the server which wrote it,
 * so that a client finds what it has left there, and nobody else does. A new one if there is no
 * file, or none that can be used. */
struct hash_key prefixes_secret(const struct prefixes_options *o);

/* A file that is damaged, or of another model or setting, is logged and passed over: the server
 * starts without it. Anything else is an error: the path is wrong. */
int prefixes_load(const struct prefixes_options *o, carat_engine *engine, struct carat_error *err);

/* Logs what came of it. */
void prefixes_save(const struct prefixes_options *o, struct hash_key secret, carat_engine *engine);

#endif
