/* Whether files on the disk are what they should be. */
#ifndef HUB_CHECK_H
#define HUB_CHECK_H

#include "hub/files.h"
#include "hub/watch.h"

/* The sha256 of a whole file. CARAT_EBUSY: stopped. */
int check_sum(const char *path, const struct hub_watch *watch, char sum[HUB_SHA256_HEX + 1],
              struct carat_error *err);

/* The sha256 that a file should have: its record says so, or its name in a store of blobs, which a
 * link may lead to. "" if nothing does. */
void check_expected(const char *path, char sum[HUB_SHA256_HEX + 1]);

#endif
