/* Hashes of bytes that somebody else chose: SipHash-1-3 under a random key, so that nobody can
 * prepare texts that all fall into one slot of a table. Results must not depend on it: a hash
 * decides where something is found, never what or in which order. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_key {
    uint64_t low, high;
};

/* A new one, from the system's random numbers. */
struct hash_key hash_key_random(void);

uint64_t hash_bytes(struct hash_key key, const void *bytes, size_t length);

#endif
