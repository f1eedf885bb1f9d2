/* One file of a model: mapped, parsed and closed. */
#include <string.h>

#include "gguf/internal.h"

int part_within_file(struct carat_error *err, const char *path)
{
    char shown[GGUF_PRINTABLE_BYTES];
    size_t length = strlen(path), kept = GGUF_PRINTABLE_BYTES - 8;
    const char *tail = length > kept ? path + length - kept : path;
    return err_within(err, "%s%s", tail > path ? "..." : "",
                      gguf_printable(shown, tail, strlen(tail)));
}

int part_open(struct part *part, int index, const char *path, struct arena *arena,
              struct carat_error *err)
{
    TRY(os_map_open(&part->map, path, err));
    part->is_mapped = true;
    part->data = part->map.data;
    part->length = part->map.length;
    int status = part_parse(part, index, arena, err);
    return status == CARAT_OK ? CARAT_OK : part_within_file(err, path);
}

void part_close(struct part *part)
{
    if (part->is_mapped) os_map_close(&part->map);
    part->is_mapped = false;
}
