#include "server/process_facts.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The field of that number in /proc/self/stat, counted from 1; 0 when it is not there. The second
 * field is the program's name in brackets, which may contain anything. */
static double stat_field(const char *text, int number)
{
    const char *at = strrchr(text, ')');
    for (int i = 2; at && i < number; i++) at = strchr(at + 1, ' ');
    return at ? strtod(at + 1, NULL) : 0;
}

static double seconds_of(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double count_open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    int n = -1; /* this folder itself */
    for (const struct dirent *entry; (entry = readdir(folder));) n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

void process_facts_read(struct process_facts *out)
{
    *out = (struct process_facts){0};
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    double ticks = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
    out->cpu_seconds = (stat_field(text, 14) + stat_field(text, 15)) / ticks;
    out->threads = stat_field(text, 20);
    double since_boot = stat_field(text, 22) / ticks;
    out->virtual_bytes = stat_field(text, 23);
    out->resident_bytes = stat_field(text, 24) * page;
    out->start_seconds = seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME) + since_boot;
    out->open_files = count_open_files();
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) out->open_files_max = (double)limit.rlim_cur;
}
