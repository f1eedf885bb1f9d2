/* Which of many files are the model that a name means. Pure. */
#ifndef HUB_CHOOSE_H
#define HUB_CHOOSE_H

#include <stdbool.h>

#include "base/buf.h"
#include "hub/files.h"

#define HUB_TAG_DEFAULT "Q4_K_M"
#define HUB_TAG_DRAFTER "MTP"

/* Keeps the file, or all parts of the split model in their order, that `file` (a path; "": any) or
 * `tag` ("": HUB_TAG_DEFAULT) means. A tag is compared without regard to case: with the whole
 * quantisation in the name first ("UD-Q4_K_M"), then with its end. Projectors, importance matrices
 * and split models that lack parts are never chosen. A drafter is chosen by `file`, by the tag
 * HUB_TAG_DRAFTER ("MTP", the first in the order of hub_compare_drafters; "MTP-Q8_0": of that
 * quantisation), or like a model if there are only drafters.
 *
 * CARAT_EUSAGE: none or several fit. `files` then has one entry for each model that can be chosen:
 * its first file, with the size of all its parts. */
int hub_choose(struct hub_files *files, const char *tag, const char *file, struct carat_error *err);

/* The quantisation that a file's name ends with ("UD-Q4_K_XL"), upper case; "" if it has none. */
enum { HUB_TAG_MAX = 32 };
const char *hub_tag_of_path(const char *path, char out[HUB_TAG_MAX]);

/* Whether file k alone has its quantisation, of the models whose paths begin with its first n
 * bytes. */
bool hub_tag_is_own(const struct hub_files *files, size_t k, size_t n);

/* How many files the model has whose first one this is (1: it is not split), and the path of its
 * file i, from 0 on. */
int hub_parts(const char *path);
void hub_add_part(const char *path, int i, struct buf *out);

/* Whether a path may be a model's first file: no later part, projector or importance matrix. */
bool hub_is_model(const char *path);

/* Whether its name says that it is a drafter. */
bool hub_is_drafter(const char *path);

/* For qsort of struct hub_file: the better drafter first. */
int hub_compare_drafters(const void *a, const void *b);

#endif
