/* Config files of any content: what is read are non-empty names of one line each, in the order of
 * the file; what is refused says why.
 *
 * Subject: src/cli/config_file.c 100 */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cli/config_file.h"
#include "fuzz/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config_file f;
    struct carat_error err = {0};
    long before = mem_blocks_live();
    int status = config_file_read(&f, "config", size ? (const char *)data : "", size, &err);
    carat_assert(status == CARAT_OK || (status == CARAT_EUSAGE && err.message[0]));
    int32_t line = 0;
    for (size_t i = 0; i < f.n; i++) {
        const struct config_entry *e = &f.entries[i];
        carat_assert(e->section[0] && e->key[0] && e->line > line);
        carat_assert(!strchr(e->section, '\n') && !strchr(e->key, '=') && !strchr(e->value, '\n'));
        carat_assert(strlen(e->value) <= size);
        line = e->line;
    }
    config_file_deinit(&f);
    carat_assert(mem_blocks_live() == before);
    return 0;
}
