/* Decoding in shifts: when slightly more sequences decode than a power of two, all of them may get
 * more tokens if each step leaves some out, in turn. GPUs multiply rows in passes, so a step of 65
 * rows may take half as long again as one of 64. Whether it does depends on the device, the model
 * and its format, so it is tried: a few steps with everybody, a few in shifts, and the better way
 * for a few hundred steps. Pure: numbers go in, numbers come out. No allocation. */
#ifndef ENGINE_SHIFTS_H
#define ENGINE_SHIFTS_H

#include <stdbool.h>
#include <stdint.h>

struct shifts {
    int32_t least;     /* rows of the smallest shift */
    int32_t n, size;   /* of the last try: sequences, rows of a shift; 0: there was none */
    bool are_better;   /* what it found */
    int32_t tried;     /* steps of this try so far */
    int32_t since;     /* steps since it ended */
    int32_t given;     /* rows of the last answer, */
    bool is_shift;     /* and whether they were a shift */
    double seconds[2]; /* the least for a row in this try: with everybody; in shifts */
};

/* Shifts have at least this many rows, and never fewer than 32. Guesses add rows to small steps, so
 * `least` is the most rows of a step with guesses. */
void shifts_init(struct shifts *s, int32_t least);

/* How many of n sequences should decode in the next step. */
int32_t shifts_rows(struct shifts *s, int32_t n);

/* A step of this many rows that only decoded took so long. */
void shifts_note(struct shifts *s, int32_t rows, double seconds);

#endif
