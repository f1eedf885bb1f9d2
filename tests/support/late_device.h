/* A device that is not the host and does everything in the fence: copies and runs are only noted
 * before. Rows that are read too early are NaN. It computes as the reference does. */
#ifndef SUPPORT_LATE_DEVICE_H
#define SUPPORT_LATE_DEVICE_H

#include "backend/backend.h"

/* The backend "late", for a wrapper of backend_find. */
const struct backend *late_backend(void);

/* Forgets the programs of earlier runners, all counts and the limit. */
void late_reset(void);

struct late_counts {
    int uploads;
    size_t bytes_taken; /* by alloc */
};
extern struct late_counts late_counts;

/* What its devices say is available, in bytes; 0: as much as the reference. */
extern size_t late_memory;

#endif
