#include "base/calendar.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

static void write_time(char out[CALENDAR_TEXT], const struct tm *parts, const char *form,
                       const char *otherwise)
{
    bool has_date = parts && parts->tm_year >= -1900 && parts->tm_year < 10000 - 1900;
    if (!has_date || strftime(out, CALENDAR_TEXT, form, parts) == 0)
        snprintf(out, CALENDAR_TEXT, "%s", otherwise);
}

void calendar_utc(int64_t seconds, char out[CALENDAR_TEXT])
{
    time_t when = (time_t)seconds;
    struct tm parts;
    write_time(out, gmtime_r(&when, &parts), "%Y-%m-%dT%H:%M:%SZ", "1970-01-01T00:00:00Z");
}

void calendar_day(int64_t seconds, char out[CALENDAR_TEXT])
{
    time_t when = (time_t)seconds;
    struct tm parts;
    write_time(out, localtime_r(&when, &parts), "%Y-%m-%d", "-");
}
