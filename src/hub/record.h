/* The record next to a file: where it comes from and what it should be, as JSON in "FILE.json".
 * While a file is loaded, the record of its part is in "FILE.part.json". */
#ifndef HUB_RECORD_H
#define HUB_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/calendar.h"
#include "base/status.h"
#include "hub/files.h"
#include "hub/url.h"

struct record {
    char source[URL_MAX];              /* the name or address, without secrets */
    char revision[HUB_SHA256_HEX + 1]; /* commit or digest; "": none */
    char sha256[HUB_SHA256_HEX + 1];   /* "": unknown */
    char etag[256];                    /* with its quotes; "": unknown */
    char date[CALENDAR_TEXT];          /* when it was whole: calendar_utc */
    uint64_t size;                     /* bytes; 0: unknown */
};

/* Reads PATH.json. False: there is none, or it is none of ours, or there is no jansson. */
bool record_read(const char *path, struct record *out);

/* Writes PATH.json under another name, then renames it. CARAT_EIO names it. */
int record_write(const char *path, const struct record *record, struct carat_error *err);

#endif
