#include "cli/memory_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *kv_name(enum carat_kv_type type)
{
    static const char *const names[] = {"auto", "f16", "f32", "q8_0", "bf16"};
    return names[type];
}

/* ---- One line --------------------------------------------------------------------------- */

static void add_size(struct buf *out, uint64_t bytes)
{
    if (bytes < (uint64_t)1 << 30)
        buf_printf(out, "%.1f MiB", (double)bytes / (1 << 20));
    else
        buf_printf(out, "%.2f GiB", (double)bytes / (1 << 30));
}

static void add_part(struct buf *out, const char *label, uint64_t bytes)
{
    if (bytes == 0) return;
    buf_add_text(out, label);
    add_size(out, bytes);
}

void memory_add_line(struct buf *out, const struct carat_memory *m)
{
    uint64_t cache = m->kv_local + m->kv_global;
    buf_add_text(out, "memory: ");
    add_size(out, m->weights + cache + m->buffers + m->step);
    add_part(out, " of ", m->available);
    add_part(out, ": weights ", m->weights);
    add_part(out, " (of these fp16 copies ", m->mirrors);
    if (m->mirrors) buf_add_char(out, ')');
    buf_add_text(out, m->weights ? ", KV cache " : ": KV cache ");
    add_size(out, cache);
    buf_printf(out, " (%s%s, %d positions)", kv_name(m->kv_type),
               m->kv_is_narrowed ? ", since f16 does not fit" : "", m->n_ctx);
    add_part(out, ", buffers ", m->buffers + m->step);
    if (m->weights == 0) add_part(out, "; the mapped file ", m->weights_mapped);
    add_part(out, "; pinned on the host ", m->pinned);
    add_part(out, "; on the CPU ", m->second_total);
    add_part(out, " of ", m->second_available);
}

/* ---- The table -------------------------------------------------------------------------- */

static void add_row(struct buf *out, const char *label, uint64_t bytes)
{
    buf_printf(out, "  %-26s %10.1f MiB %16llu bytes\n", label, (double)bytes / (1 << 20),
               (unsigned long long)bytes);
}

static void add_pages(struct buf *out, const char *label, int32_t n, uint64_t page_bytes)
{
    buf_printf(out, "  %-26s %10d of %12llu bytes\n", label, n, (unsigned long long)page_bytes);
}

void memory_add_table(struct buf *out, const struct carat_memory *m)
{
    buf_printf(out, "memory with %d positions, KV cache in %s%s\n", m->n_ctx, kv_name(m->kv_type),
               m->kv_is_narrowed ? " of global layers (f16 does not fit)" : "");
    add_row(out, "weights (mapped file)", m->weights_mapped);
    if (m->weights) add_row(out, "weights (as computed with)", m->weights);
    if (m->mirrors) add_row(out, "  of these fp16 copies", m->mirrors);
    if (m->ple_cache) add_row(out, "  of these table rows", m->ple_cache);
    add_row(out, "KV cache, local", m->kv_local);
    add_row(out, "KV cache, global", m->kv_global);
    add_pages(out, "  pages, local", m->pages_local, m->page_bytes_local);
    add_pages(out, "  pages, global", m->pages_global, m->page_bytes_global);
    buf_printf(out, "  %-26s %10lld\n", "  positions of all texts", (long long)m->cache_positions);
    if (m->n_anchors) buf_printf(out, "  %-26s %10d\n", "  anchors", m->n_anchors);
    add_row(out, "buffers", m->buffers + m->step);
    if (m->pinned) add_row(out, "pinned on the host", m->pinned);
    add_row(out, "total", m->total);
    if (m->driver) add_row(out, "left to the driver, about", m->driver);
    add_row(out, "available now", m->available);
    if (m->second_total == 0) return;
    buf_printf(out, "  %-26s %10d\n", "layers there", m->gpu_layers);
    add_row(out, "on the CPU", m->second_total);
    add_row(out, "available there", m->second_available);
}

void memory_add_json(struct json *j, const struct carat_memory *m)
{
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {
        {"weights_mapped", m->weights_mapped},
        {"weights", m->weights},
        {"ple_cache", m->ple_cache},
        {"mirrors", m->mirrors},
        {"kv_local", m->kv_local},
        {"kv_global", m->kv_global},
        {"buffers", m->buffers},
        {"step", m->step},
        {"pinned", m->pinned},
        {"total", m->total},
        {"driver", m->driver},
        {"available", m->available},
        {"n_ctx", (uint64_t)m->n_ctx},
        {"gpu_layers", (uint64_t)m->gpu_layers},
        {"pages_local", (uint64_t)m->pages_local},
        {"pages_global", (uint64_t)m->pages_global},
        {"page_bytes_local", m->page_bytes_local},
        {"page_bytes_global", m->page_bytes_global},
        {"cache_positions", (uint64_t)m->cache_positions},
        {"anchors", (uint64_t)m->n_anchors},
        {"second_total", m->second_total},
        {"second_available", m->second_available},
    };
    json_begin_object(j);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_key_int(j, rows[i].key, (int64_t)rows[i].value);
    }
    json_key_string(j, "kv_type", kv_name(m->kv_type));
    json_key_bool(j, "kv_is_narrowed", m->kv_is_narrowed);
    json_end_object(j);
}

/* ---- The limit -------------------------------------------------------------------------- */

/* Bytes of a unit; 0: there is no such unit. */
static double unit_bytes(const char *word)
{
    static const char prefixes[] = "kmgt";
    char unit[4] = "";
    for (size_t i = 0; word[i]; i++) {
        if (i == 3) return 0;
        unit[i] = (char)tolower((unsigned char)word[i]);
    }
    if (!unit[0] || strcmp(unit, "b") == 0) return 1;
    const char *prefix = strchr(prefixes, unit[0]);
    if (!prefix) return 0;
    bool is_decimal = strcmp(unit + 1, "b") == 0;
    if (!is_decimal && unit[1] && strcmp(unit + 1, "ib") != 0) return 0;
    return pow(is_decimal ? 1000 : 1024, (double)(prefix - prefixes + 1));
}

bool memory_read_limit(const char *text, int64_t *bytes, int32_t *percent)
{
    char *end;
    *bytes = 0;
    *percent = 0;
    if (!isdigit((unsigned char)text[0])) return false;
    double number = strtod(text, &end);
    if (strcmp(end, "%") == 0) {
        *percent = (int32_t)(number < 1e3 ? number : 1e3);
        return number >= 1 && number <= 100 && floor(number) >= number;
    }
    *bytes = (int64_t)fmin(number * unit_bytes(end), 1e18);
    return *bytes > 0;
}
