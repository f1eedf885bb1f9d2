#include "base/allowance.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/os.h"
#include "base/topology.h"

/* Version 1 says "no limit" with the largest multiple of a page. */
static const uint64_t NO_LIMIT = UINT64_C(1) << 60;

/* ---- Files of numbers ------------------------------------------------------------------- */

/* A number without sign at `text`, ended by a blank, or by the end of the line or of the text. */
static bool number_at(const char *text, uint64_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\0' || *end == ' ' || *end == '\t' || *end == '\n');
}

/* The number after `key` ("": at the beginning) in a file of a folder below `root`. */
static bool read_number(const char *root, const char *folder, const char *file, const char *key,
                        uint64_t *out)
{
    char path[PATH_MAX], text[128];
    int n = snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
    if (n < 0 || (size_t)n >= sizeof path) return false;
    return os_read_field(path, key, text, sizeof text) && number_at(text, out);
}

/* ---- Groups around this process --------------------------------------------------------- */

/* A line of /proc/self/cgroup: "4:memory:/some/group", or "0::/some/group" of version 2. */
struct membership {
    bool is_v2;
    char path[PATH_MAX];
};

/* Where a hierarchy of groups is mounted: its group `root` is at `folder`. */
struct group_mount {
    char root[PATH_MAX], folder[PATH_MAX];
};

/* Whether a comma-separated list has the word. */
static bool lists(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (;; list++) {
        size_t n = strcspn(list, ",");
        if (n == length && memcmp(list, word, n) == 0) return true;
        list += n;
        if (*list == '\0') return false;
    }
}

/* Cuts the line at its colons; false for another controller, or if it is no such line. */
static bool read_membership(char *line, const char *controller, struct membership *out)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || path[1] != '/') return false;
    *controllers++ = '\0';
    *path++ = '\0';
    out->is_v2 = strcmp(line, "0") == 0 && *controllers == '\0';
    snprintf(out->path, sizeof out->path, "%s", path);
    return out->is_v2 || lists(controllers, controller);
}

/* In mountinfo a blank, tab, newline or backslash of a path is a backslash and three octal digits.
 * Undone in place. */
static void undo_escapes(char *path)
{
    char *to = path;
    for (const char *from = path; *from; from++, to++) {
        bool is_escape = from[0] == '\\' && strspn(from + 1, "01234567") >= 3;
        *to = *from;
        if (!is_escape) continue;
        *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
        from += 3;
    }
    *to = '\0';
}

/* "31 23 0:28 ROOT FOLDER options [more] - TYPE source options"; false for another file system or
 * controller. */
static bool read_mount(char *line, const struct membership *m, const char *controller,
                       struct group_mount *out)
{
    char *rest = NULL, *fields[5];
    line[strcspn(line, "\n")] = '\0';
    char *after = strstr(line, " - ");
    if (!after) return false;
    *after = '\0';
    char *type = strtok_r(after + 3, " ", &rest);
    char *source = strtok_r(NULL, " ", &rest), *options = strtok_r(NULL, " ", &rest);
    if (!type || !source || strcmp(type, m->is_v2 ? "cgroup2" : "cgroup") != 0) return false;
    if (!m->is_v2 && !(options && lists(options, controller))) return false;
    for (int i = 0; i < 5; i++) {
        fields[i] = strtok_r(i ? NULL : line, " ", &rest);
        if (!fields[i]) return false;
    }
    undo_escapes(fields[3]);
    undo_escapes(fields[4]);
    snprintf(out->root, sizeof out->root, "%s", fields[3]);
    snprintf(out->folder, sizeof out->folder, "%s", fields[4]);
    return out->folder[0] == '/';
}

static bool find_mount(const char *root, const struct membership *m, const char *controller,
                       struct group_mount *out)
{
    char path[PATH_MAX], line[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) found = read_mount(line, m, controller, out);
    if (f) fclose(f);
    return found;
}

/* The part of a group's path below the mounted group. In a container the files may show only our
 * own group, or groups above it may have other names: then the mounted group is ours. */
static const char *path_below(const char *path, const char *mounted)
{
    size_t n = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    if (strstr(path, "/..") || strncmp(path, mounted, n) != 0) return "";
    return path[n] == '/' && path[n + 1] ? path + n : "";
}

typedef void (*visit_group)(void *user, const char *folder, bool is_v2);

/* Calls `visit` for the group of this process and for each around it, as far as they are mounted.
 * Looks at groups of both versions: where both exist, either may have the controller. */
static void visit_groups(const char *root, const char *controller, visit_group visit, void *user)
{
    char path[PATH_MAX], line[PATH_MAX + 256];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        struct membership m;
        struct group_mount mount;
        char folder[2 * PATH_MAX];
        if (!read_membership(line, controller, &m) || !find_mount(root, &m, controller, &mount))
            continue;
        snprintf(folder, sizeof folder, "%s%s", mount.folder, path_below(m.path, mount.root));
        for (size_t top = strlen(mount.folder);; *strrchr(folder, '/') = '\0') {
            visit(user, folder, m.is_v2);
            if (strlen(folder) <= top) break;
        }
    }
    if (f) fclose(f);
}

static void set_source(struct allowance_source *out, const char *name, const char *path)
{
    out->name = name;
    snprintf(out->path, sizeof out->path, "%s", path);
}

/* ---- Memory ----------------------------------------------------------------------------- */

struct memory_search {
    const char *root;
    struct memory_allowance *found;
};

/* `used` of `limit` bytes are taken. */
static void limit_memory(struct memory_allowance *m, uint64_t limit, uint64_t used,
                         const char *name, const char *path)
{
    uint64_t left = bytes_left(limit, used);
    if (limit < m->total) m->total = limit;
    if (left >= m->available) return;
    m->available = left;
    set_source(&m->source, name, path);
}

/* Pages of files and of the kernel that the group gives back before it runs out. */
static uint64_t reclaimable_bytes(const char *root, const char *folder, bool is_v2)
{
    static const char *const keys[2][3] = {
        {"total_active_file ", "total_inactive_file ", NULL},
        {"active_file ", "inactive_file ", "slab_reclaimable "},
    };
    uint64_t sum = 0, bytes;
    for (int i = 0; i < 3; i++)
        if (keys[is_v2][i] && read_number(root, folder, "memory.stat", keys[is_v2][i], &bytes))
            sum += bytes;
    return sum;
}

static void visit_memory_group(void *user, const char *folder, bool is_v2)
{
    const struct memory_search *s = user;
    static const char *const limits[2][2] = {{"memory.limit_in_bytes", NULL},
                                             {"memory.max", "memory.high"}};
    uint64_t limit, used = 0;
    read_number(s->root, folder, is_v2 ? "memory.current" : "memory.usage_in_bytes", "", &used);
    uint64_t reclaimable = reclaimable_bytes(s->root, folder, is_v2);
    used = bytes_left(used, reclaimable);
    for (int i = 0; i < 2; i++) {
        const char *name = limits[is_v2][i];
        if (name && read_number(s->root, folder, name, "", &limit) && limit < NO_LIMIT)
            limit_memory(s->found, limit, used, name, folder);
    }
}

/* Address space and private memory, of which the process has taken some already. */
static void limit_by_process(struct memory_allowance *m, const char *root)
{
    static const struct {
        const char *name, *limit, *taken;
    } limits[] = {{"RLIMIT_AS", "Max address space", "VmSize"},
                  {"RLIMIT_DATA", "Max data size", "VmData"}};
    uint64_t limit, taken_kib;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (read_number(root, "/proc/self", "limits", limits[i].limit, &limit) &&
            read_number(root, "/proc/self", "status", limits[i].taken, &taken_kib))
            limit_memory(m, limit, taken_kib * 1024, limits[i].name, "");
}

struct memory_allowance allowance_memory(const char *root)
{
    struct memory_allowance m = {.total = os_memory_total(), .source.name = "MemAvailable"};
    uint64_t kib;
    if (read_number(root, "/proc", "meminfo", "MemTotal", &kib)) m.total = kib * 1024;
    m.available = m.total;
    if (read_number(root, "/proc", "meminfo", "MemAvailable", &kib)) m.available = kib * 1024;
    struct memory_search s = {.root = root, .found = &m};
    visit_groups(root, "memory", visit_memory_group, &s);
    limit_by_process(&m, root);
    return m;
}

uint64_t allowed_memory(void)
{
    return allowance_memory("").available;
}

/* ---- Threads ---------------------------------------------------------------------------- */

struct thread_search {
    const char *root;
    struct thread_allowance *found;
};

/* Microseconds of processor time that a group may take in each period. */
static bool read_quota(const char *root, const char *folder, bool is_v2, uint64_t *quota,
                       uint64_t *period)
{
    if (!is_v2)
        return read_number(root, folder, "cpu.cfs_quota_us", "", quota) &&
               read_number(root, folder, "cpu.cfs_period_us", "", period);
    char path[PATH_MAX], text[128];
    int n = snprintf(path, sizeof path, "%s%s/cpu.max", root, folder);
    if (n < 0 || (size_t)n >= sizeof path || !os_read_field(path, "", text, sizeof text))
        return false;
    const char *second = strchr(text, ' ');
    return second && number_at(text, quota) && number_at(second + 1, period);
}

static void visit_cpu_group(void *user, const char *folder, bool is_v2)
{
    const struct thread_search *s = user;
    uint64_t quota, period;
    if (!read_quota(s->root, folder, is_v2, &quota, &period) || period == 0) return;
    uint64_t threads = quota / period + (quota % period != 0);
    if (threads >= (uint64_t)s->found->count) return;
    s->found->count = threads > 0 ? (int)threads : 1;
    set_source(&s->found->source, is_v2 ? "cpu.max" : "cpu.cfs_quota_us", folder);
}

struct thread_allowance allowance_threads(const char *root, int cores)
{
    struct thread_allowance t = {.count = cores, .source.name = "cores"};
    cpu_set_t mask;
    if (cores == 0) {
        t.count = topology_cores();
        bool is_known = sched_getaffinity(0, sizeof mask, &mask) == 0;
        if (is_known && CPU_COUNT(&mask) < sysconf(_SC_NPROCESSORS_ONLN))
            t.source.name = "affinity mask";
    }
    struct thread_search s = {.root = root, .found = &t};
    visit_groups(root, "cpu", visit_cpu_group, &s);
    return t;
}

int allowed_threads(void)
{
    return allowance_threads("", 0).count;
}
