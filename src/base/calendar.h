/* Times as people and other programs read them. */
#ifndef BASE_CALENDAR_H
#define BASE_CALENDAR_H

#include <stdint.h>

enum { CALENDAR_TEXT = 32 };

/* Seconds since 1970 as "2026-11-28T04:39:08Z" (ISO 8601). Times outside the years 0 to 9999, as a
 * file may have, are written as the second 0. */
void calendar_utc(int64_t seconds, char out[CALENDAR_TEXT]);

/* The day in the time zone of this process, "2026-11-28"; "-" for such times. */
void calendar_day(int64_t seconds, char out[CALENDAR_TEXT]);

#endif
