#include "cli/size_text.h"

#include <stdio.h>

const char *size_text(uint64_t bytes, char out[SIZE_TEXT_MAX])
{
    double mib = (double)bytes / (1 << 20);
    if (mib < 1024)
        snprintf(out, SIZE_TEXT_MAX, "%.1f MiB", mib);
    else
        snprintf(out, SIZE_TEXT_MAX, "%.2f GiB", mib / 1024);
    return out;
}
