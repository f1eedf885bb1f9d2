/* The config file: lines `key = value` below sections `[default]` and `[MODEL]`.
 *
 * Blank lines and lines that begin with # or ; are skipped. Keys before the first section belong to
 * [default]. A value ends at the end of its line; blanks around it do not count, unless it stands
 * in double quotes. Nothing else is special: no includes, no continued lines, no variables. */
#ifndef CLI_CONFIG_FILE_H
#define CLI_CONFIG_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { CONFIG_BYTES_MAX = 1 << 20, CONFIG_LINE_MAX = 1 << 16, CONFIG_ENTRIES_MAX = 4096 };

struct config_entry {
    const char *section, *key, *value; /* of config_file.text; key and section are not empty */
    int32_t line;                      /* from 1 */
};

struct config_file {
    char *text;                   /* owned */
    struct config_entry *entries; /* [n], in their order; owned */
    size_t n;
};

/* Reads the bytes of a file; `path` is for messages alone. CARAT_EUSAGE names the line. Any bytes
 * may come. On failure nothing is owned. */
int config_file_read(struct config_file *out, const char *path, const char *bytes, size_t length,
                     struct carat_error *err);
void config_file_deinit(struct config_file *f);

#endif
