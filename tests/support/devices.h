/* Tests that want a device that this machine may lack. */
#ifndef SUPPORT_DEVICES_H
#define SUPPORT_DEVICES_H

/* Ends the running cmocka case as skipped, with the reason printed, unless this machine has a
 * device of the backend called `name`. */
void need_device(const char *name);

/* The instruction set that CARAT_ISA names, for a case that computes on the CPU; NULL: the best
 * one. Ends the case as skipped, with the reason printed, if this machine cannot run the set, or
 * takes it anyway. */
const char *forced_isa(void);

#endif
