/* What the engine needs of Linux: mapped files, clocks, memory and processor facts. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A regular file mapped read-only. Owned by the caller of os_map_open. The mapping is listed
 * by address until closed, so that a SIGBUS handler can say which file was cut short. */
struct os_map {
    const uint8_t *data;
    size_t length;
    int slot; /* in the list of mappings */
};

/* Refuses what is not a regular file (directory, FIFO, device, socket) with CARAT_EFORMAT. */
int os_map_open(struct os_map *map, const char *path, struct carat_error *err);
void os_map_close(struct os_map *map);

/* Tells the system that the whole pages of mapped bytes [data, data + bytes) are not needed now;
 * reading them later brings them back from the file. */
void os_map_release(const void *data, size_t bytes);

/* Tells the system that mapped bytes [data, data + bytes) will be read soon: the system fetches
 * those that are not in memory. */
void os_map_expect(const void *data, size_t bytes);

/* Zeroed memory of whole pages, huge ones where the system allows; NULL when out of memory. */
void *os_pages_take(size_t bytes);
void os_pages_give(void *pages, size_t bytes); /* NULL is fine */

/* Spreads pages that were not touched yet over the memory of several nodes, a bit each in `nodes`.
 * False when the system refuses; the pages are then near whoever touches them first. */
bool os_pages_spread(void *pages, size_t bytes, uint64_t nodes);

/* Path of the mapped file that contains `address`, or NULL. Async-signal-safe. */
const char *os_map_path_at(const void *address);

double os_seconds(void);                  /* monotonic clock */
uint64_t os_memory_total(void);           /* bytes */
int os_processors(void);                  /* in this thread's affinity mask; at least 1 */
void os_cpu_name(char *out, size_t size); /* "unknown" when it cannot be read */
/* Space-separated features that matter here: "avx2 f16c avx512f avx512_vnni ...". */
void os_cpu_features(char *out, size_t size);
/* Asks the system to keep the registers of AMX (8 KB) for the threads of this process. Once granted
 * it stays so, and asking again does no harm. False when it refuses or knows nothing of them. It
 * also refuses where a thread has an alternate signal stack that is too small for them
 * (AT_MINSIGSTKSZ). */
bool os_permit_amx(void);

/* The first line of a text file that begins with `key`, without key, colon and blanks; cut to
 * `size`. False when the file cannot be read or has no such line. */
bool os_read_field(const char *file, const char *key, char *out, size_t size);

#endif
