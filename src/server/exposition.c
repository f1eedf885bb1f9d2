#include "server/exposition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* The shortest decimal that reads back as the same number. */
static void put_number(struct buf *out, double value)
{
    char text[40];
    if (!isfinite(value)) {
        buf_add_text(out, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    buf_add_text(out, text);
}

void family_begin(struct buf *out, const char *name, enum family_kind kind, const char *help)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kinds[kind]);
}

void sample_put(struct buf *out, const char *name, const char *labels, double value)
{
    buf_add_text(out, name);
    if (labels[0]) buf_printf(out, "{%s}", labels);
    buf_add_char(out, ' ');
    put_number(out, value);
    buf_add_char(out, '\n');
}

void labels_add(struct buf *labels, const char *name, const char *value)
{
    buf_printf(labels, "%s%s=\"", labels->length ? "," : "", name);
    for (size_t i = 0, length = strlen(value); i < length;) {
        uint32_t code_point;
        int n = utf8_read(value + i, length - i, &code_point);
        if (n == 0)
            buf_add_text(labels, "\xEF\xBF\xBD");
        else if (value[i] == '\n')
            buf_add_text(labels, "\\n");
        else if (value[i] == '"' || value[i] == '\\')
            buf_printf(labels, "\\%c", value[i]);
        else
            buf_add(labels, value + i, (size_t)n);
        i += n ? (size_t)n : 1;
    }
    buf_add_char(labels, '"');
}

void histogram_add(struct histogram *h, double value)
{
    double counted = isfinite(value) && value > 0 ? value : 0;
    int bucket = 0;
    while (bucket < h->n && counted > h->bounds[bucket]) bucket++;
    h->counts[bucket]++;
    h->sum += counted;
}

void histogram_put(struct buf *out, const char *name, const char *labels, const struct histogram *h)
{
    const char *comma = labels[0] ? "," : "";
    uint64_t total = 0;
    for (int i = 0; i <= h->n; i++) {
        total += h->counts[i];
        buf_printf(out, "%s_bucket{%s%sle=\"", name, labels, comma);
        put_number(out, i < h->n ? h->bounds[i] : INFINITY);
        buf_printf(out, "\"} %llu\n", (unsigned long long)total);
    }
    const char *open = labels[0] ? "{" : "", *close = labels[0] ? "}" : "";
    buf_printf(out, "%s_sum%s%s%s ", name, open, labels, close);
    put_number(out, h->sum);
    buf_printf(out, "\n%s_count%s%s%s %llu\n", name, open, labels, close,
               (unsigned long long)total);
}
