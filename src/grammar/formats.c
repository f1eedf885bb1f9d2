#include "grammar/formats.h"

#include <string.h>

/* Days that exist: 31 in seven months, 30 in all but February, 28 there; the 29th of February where
 * the year is a multiple of 4, but of 100 only where it is one of 400. */
#define DATE                                                                                       \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
    "|02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])"                       \
    "|(?:[02468][048]|[13579][26])00)-02-29)"
#define CLOCK "(?:[01]\\d|2[0-3]):[0-5]\\d"
#define TIME CLOCK ":[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-]" CLOCK ")"
#define HEX "[0-9a-fA-F]"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define WORD "[A-Za-z0-9_+-]+"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$"},
    {"email", "^" WORD "(?:\\." WORD ")*@(?:" LABEL "\\.)+[A-Za-z]{2,24}$"},
};

const char *format_pattern(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strlen(formats[i].name) == length && memcmp(formats[i].name, name, length) == 0)
            return formats[i].pattern;
    return NULL;
}
