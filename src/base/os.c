#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* The list of mappings exists for signal handlers, which can only reach global data. A slot
 * is taken by setting `path` and published by setting `data` last. */
enum { MAPPINGS_MAX = 1024 };
static struct {
    _Atomic(const uint8_t *) data;
    size_t length;
    _Atomic(char *) path;
} mappings[MAPPINGS_MAX];

static int list_mapping(const uint8_t *data, size_t length, char *path)
{
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        char *expected = NULL;
        if (!atomic_compare_exchange_strong(&mappings[i].path, &expected, path)) continue;
        mappings[i].length = length;
        atomic_store(&mappings[i].data, data);
        return i;
    }
    return -1;
}

static int open_regular(const char *path, size_t *length, struct carat_error *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        err_set(err, CARAT_EFORMAT, "%s: cannot be opened: %s", path, strerror(errno));
        return -1;
    }
    struct stat facts;
    const char *problem = NULL;
    if (fstat(fd, &facts) != 0)
        problem = strerror(errno);
    else if (S_ISDIR(facts.st_mode))
        problem = "a file is expected, this is a directory";
    else if (!S_ISREG(facts.st_mode))
        problem = "a regular file is expected, this is a device, pipe or socket";
    if (problem) {
        err_set(err, CARAT_EFORMAT, "%s: %s", path, problem);
        close(fd);
        return -1;
    }
    *length = (size_t)facts.st_size;
    return fd;
}

int os_map_open(struct os_map *map, const char *path, struct carat_error *err)
{
    *map = (struct os_map){.slot = -1};
    size_t length;
    int fd = open_regular(path, &length, err);
    if (fd < 0) return CARAT_EFORMAT;
    int status = CARAT_OK;
    if (length == 0) {
        status = err_set(err, CARAT_EFORMAT, "%s: the file is empty", path);
        goto close_file;
    }
    void *data = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        status = err_set(err, CARAT_EMEMORY, "%s: mapping %zu bytes failed: %s", path, length,
                         strerror(errno));
        goto close_file;
    }
    char *listed = mem_copy_text(path, strlen(path));
    int slot = listed ? list_mapping(data, length, listed) : -1;
    if (slot < 0) {
        status = listed ? err_set(err, CARAT_EMEMORY, "%s: more than %d files are mapped", path,
                                  MAPPINGS_MAX)
                        : err_no_memory(err, path, strlen(path));
        mem_free(listed);
        munmap(data, length);
        goto close_file;
    }
    *map = (struct os_map){.data = data, .length = length, .slot = slot};
close_file:
    close(fd);
    return status;
}

void os_map_close(struct os_map *map)
{
    if (!map->data) return;
    atomic_store(&mappings[map->slot].data, NULL);
    char *path = atomic_exchange(&mappings[map->slot].path, NULL);
    munmap((void *)(uintptr_t)map->data, map->length);
    mem_free(path);
    *map = (struct os_map){.slot = -1};
}

void os_map_release(const void *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (end > first) madvise((void *)first, end - first, MADV_DONTNEED);
}

void os_map_expect(const void *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)data / page * page;
    if (bytes) madvise((void *)first, (uintptr_t)data + bytes - first, MADV_WILLNEED);
}

void *os_pages_take(size_t bytes)
{
    if (!mem_may_allocate()) return NULL;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    madvise(pages, bytes, MADV_HUGEPAGE); /* a hint */
    return pages;
}

void os_pages_give(void *pages, size_t bytes)
{
    if (pages) munmap(pages, bytes);
}

bool os_pages_spread(void *pages, size_t bytes, uint64_t nodes)
{
    enum { INTERLEAVE = 3 }; /* MPOL_INTERLEAVE; its header is not installed everywhere */
    const uint64_t mask[2] = {nodes, 0};
    return syscall(SYS_mbind, pages, bytes, INTERLEAVE, mask, sizeof mask * 8 - 1, 0) == 0;
}

const char *os_map_path_at(const void *address)
{
    const uint8_t *byte = address;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        const uint8_t *data = atomic_load(&mappings[i].data);
        if (data && byte >= data && byte < data + mappings[i].length)
            return atomic_load(&mappings[i].path);
    }
    return NULL;
}

double os_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool os_read_field(const char *file, const char *key, char *out, size_t size)
{
    FILE *f = fopen(file, "re");
    if (!f) return false;
    char line[8192];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = line + strlen(key);
        value += strspn(value, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    fclose(f);
    return found;
}

uint64_t os_memory_total(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

int os_processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

void os_cpu_name(char *out, size_t size)
{
    if (!os_read_field("/proc/cpuinfo", "model name", out, size)) snprintf(out, size, "unknown");
}

void os_cpu_features(char *out, size_t size)
{
    static const char *const wanted[] = {"avx2",     "f16c",     "fma",         "avx_vnni",
                                         "avx512f",  "avx512bw", "avx512_vnni", "avx512_bf16",
                                         "amx_int8", "amx_bf16"};
    char flags[8192];
    if (!os_read_field("/proc/cpuinfo", "flags", flags, sizeof flags)) flags[0] = '\0';
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        size_t n = strlen(wanted[i]);
        for (const char *at = flags; (at = strstr(at, wanted[i])); at += n) {
            bool whole = (at == flags || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0');
            if (!whole) continue;
            int written = snprintf(out + used, size - used, "%s%s", used ? " " : "", wanted[i]);
            if (written > 0 && (size_t)written < size - used) used += (size_t)written;
            break;
        }
    }
}

bool os_permit_amx(void)
{
#if defined(__x86_64__) && defined(SYS_arch_prctl)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch_prctl's ARCH_REQ_XCOMP_PERM */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}
