/* Tensor types of GGUF. Formats that we decode come from FORMAT_LIST. The others are listed so that
 * a file may contain such tensors as long as we do not need them. */
#include "gguf/internal.h"

/* X(type number, name, elements a block, bytes a block) */
#define FOREIGN_TYPE_LIST(X)                                                                       \
    X(9, "Q8_1", 32, 36)                                                                           \
    X(15, "Q8_K", 256, 292)                                                                        \
    X(24, "I8", 1, 1)                                                                              \
    X(25, "I16", 1, 2)                                                                             \
    X(26, "I32", 1, 4)                                                                             \
    X(27, "I64", 1, 8)                                                                             \
    X(28, "F64", 1, 8)                                                                             \
    X(34, "TQ1_0", 256, 54)                                                                        \
    X(35, "TQ2_0", 256, 66)                                                                        \
    X(40, "NVFP4", 64, 36)                                                                         \
    X(41, "Q1_0", 128, 18)                                                                         \
    X(42, "Q2_0", 64, 18)

bool tensor_type_find(uint32_t gguf_type, struct tensor_type *out)
{
    enum format format;
    if (format_from_gguf(gguf_type, &format)) {
        const struct format_traits *traits = format_traits(format);
        *out = (struct tensor_type){.name = traits->name,
                                    .block_elements = (uint32_t)traits->block_elements,
                                    .block_bytes = (uint32_t)traits->block_bytes};
        return true;
    }
    switch (gguf_type) {
#define X(number, text, elements, bytes)                                                           \
    case number:                                                                                   \
        *out = (struct tensor_type){                                                               \
            .name = text, .block_elements = (elements), .block_bytes = (bytes)};                   \
        return true;
        FOREIGN_TYPE_LIST(X)
#undef X
    default: return false;
    }
}
