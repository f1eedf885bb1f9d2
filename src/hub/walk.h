/* Files below a folder. Folders that are links are not entered. */
#ifndef HUB_WALK_H
#define HUB_WALK_H

#include "base/buf.h"
#include "hub/files.h"

/* Adds the files below `folder` whose name ends with `ending` ("": all), with their paths from it
 * and their sizes, up to six folders deep. Hidden ones are left out, and so is what cannot be read;
 * links to files count. */
int walk_files(const char *folder, const char *ending, struct hub_files *files,
               struct carat_error *err);

#endif
