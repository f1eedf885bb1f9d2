/* Tests that want a device that this machine may lack. */
#ifndef SUPPORT_DEVICES_H
#define SUPPORT_DEVICES_H

/* Ends the running cmocka case as skipped, with the reason printed, unless this machine has a
 * device of the backend called `name`. */
void need_device(const char *name);

#endif
