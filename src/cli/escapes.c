#include "cli/escapes.h"

#include <string.h>

void add_unescaped(struct buf *out, const char *text)
{
    static const char letters[] = "ntr\"'\\", characters[] = "\n\t\r\"'\\";
    for (; *text; text++) {
        const char *known = *text == '\\' && text[1] ? strchr(letters, text[1]) : NULL;
        buf_add_char(out, known ? characters[known - letters] : *text);
        if (known) text++;
    }
}
