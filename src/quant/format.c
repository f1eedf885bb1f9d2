#include "quant/format.h"

#include <strings.h>

#include "base/assert.h"
#include "quant/codecs.h"
#include "quant/half.h"

static const struct format_traits traits[FORMAT_COUNT] = {
#define X(NAME, name_, type, elements, bytes, budget_, kind, at)                                   \
    [FORMAT_##NAME] = {.name = #NAME,                                                              \
                       .gguf_type = (type),                                                        \
                       .block_elements = (elements),                                               \
                       .block_bytes = (bytes),                                                     \
                       .codes = CODE_##kind,                                                       \
                       .codes_at = (at),                                                           \
                       .budget = (budget_),                                                        \
                       .decode = name_##_decode,                                                   \
                       .encode = name_##_encode},
    FORMAT_LIST(X)
#undef X
};

const struct format_traits *format_traits(enum format format)
{
    carat_assert((unsigned)format < FORMAT_COUNT);
    return &traits[format];
}

bool format_from_gguf(uint32_t gguf_type, enum format *out)
{
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (traits[i].gguf_type != gguf_type) continue;
        *out = (enum format)i;
        return true;
    }
    return false;
}

bool format_from_name(const char *name, enum format *out)
{
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (strcasecmp(traits[i].name, name) != 0) continue;
        *out = (enum format)i;
        return true;
    }
    return false;
}

size_t format_row_bytes(enum format format, int64_t n)
{
    const struct format_traits *t = format_traits(format);
    carat_assert(n >= 0 && n % t->block_elements == 0);
    return (size_t)(n / t->block_elements) * (size_t)t->block_bytes;
}

float f16_to_f32(uint16_t bits)
{
    return half_to_float(bits);
}

uint16_t f32_to_f16(float value)
{
    return float_to_half(value);
}

float bf16_to_f32(uint16_t bits)
{
    return bfloat_to_float(bits);
}

uint16_t f32_to_bf16(float value)
{
    return float_to_bfloat(value);
}
