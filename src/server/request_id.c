#include "server/request_id.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

void request_id_make(char out[REQUEST_ID_MADE])
{
    uint64_t number[2] = {0};
    if (getrandom(number, sizeof number, 0) != sizeof number) number[0] = (uintptr_t)out;
    snprintf(out, REQUEST_ID_MADE, "%016llx%08llx", (unsigned long long)number[0],
             (unsigned long long)(number[1] & 0xFFFFFFFF));
}

static bool is_name(const char *text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(text);
    return n > 0 && n < REQUEST_ID_MAX && strspn(text, allowed) == n;
}

void request_id_choose(char out[REQUEST_ID_MAX], const char *given, const char *own)
{
    snprintf(out, REQUEST_ID_MAX, "%s", given && is_name(given) ? given : own);
}
