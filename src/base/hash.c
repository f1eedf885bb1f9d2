#include "base/hash.h"

#include <string.h>
#include <sys/random.h>

#include "base/os.h"
#include "base/rng.h"

struct state {
    uint64_t a, b, c, d;
};

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void mix(struct state *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = rotate(s->b, 13) ^ s->a;
    s->d = rotate(s->d, 16) ^ s->c;
    s->a = rotate(s->a, 32);
    s->c += s->b;
    s->a += s->d;
    s->b = rotate(s->b, 17) ^ s->c;
    s->d = rotate(s->d, 21) ^ s->a;
    s->c = rotate(s->c, 32);
}

static void add_word(struct state *s, uint64_t word)
{
    s->d ^= word;
    mix(s);
    s->a ^= word;
}

uint64_t hash_bytes(struct hash_key key, const void *bytes, size_t length)
{
    struct state s = {key.low ^ 0x736F6D6570736575u, key.high ^ 0x646F72616E646F6Du,
                      key.low ^ 0x6C7967656E657261u, key.high ^ 0x7465646279746573u};
    const unsigned char *at = bytes;
    uint64_t word, last = (uint64_t)length << 56;
    for (size_t left = length / 8; left-- > 0; at += 8) {
        memcpy(&word, at, 8);
        add_word(&s, word);
    }
    for (size_t i = 0; i < length % 8; i++) last |= (uint64_t)at[i] << 8 * i;
    add_word(&s, last);
    s.c ^= 0xFF;
    for (int i = 0; i < 3; i++) mix(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}

struct hash_key hash_key_random(void)
{
    struct hash_key key;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key) return key;
    /* An old kernel, or early in its start: where memory lies and the clock are random as well. */
    struct rng r = {(uint64_t)(uintptr_t)&key ^ (uint64_t)(os_seconds() * 1e9)};
    key.low = rng_next(&r);
    key.high = rng_next(&r);
    return key;
}
