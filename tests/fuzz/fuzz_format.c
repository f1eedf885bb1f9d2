/* Every format on any block bytes: decoding reads only the blocks, encoding what came out gives
 * blocks that decode again, with importance of any size as well. The first byte chooses the format.
 *
 * Subject: src/quant/q2_k.c 100
 * Subject: src/quant/q3_k.c 100
 * Subject: src/quant/q4_k.c 100
 * Subject: src/quant/grid_blocks.c 100
 * Subject: src/quant/grid_search.c 100
 * Subject: src/quant/iq3.c 100
 * Subject: src/quant/levels.c 100
 * Subject: src/quant/iq4_xs.c 100
 * Subject: src/quant/mxfp4.c 100
 * Subject: src/quant/group_search.c 100
 * Subject: src/quant/search.c 100 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const struct format_traits *t = format_traits((enum format)(data[0] % FORMAT_COUNT));
    size_t n_block = (size - 1) / (size_t)t->block_bytes;
    size_t bytes = n_block * (size_t)t->block_bytes;
    size_t n = n_block * (size_t)t->block_elements;
    if (n == 0) return 0;
    uint8_t *blocks = malloc(bytes);
    float *values = malloc(n * sizeof *values), *importance = malloc(n * sizeof *importance);
    if (blocks && values && importance) {
        for (size_t i = 0; i < n; i++) {
            float share = (float)data[1 + i % (size - 1)] / 255.0f;
            importance[i] = share * share * share * 1e6f;
        }
        memcpy(blocks, data + 1, bytes);
        t->decode(blocks, values, (int64_t)n);
        t->encode(values, NULL, blocks, (int64_t)n);
        t->decode(blocks, values, (int64_t)n);
        t->encode(values, importance, blocks, (int64_t)n);
        t->decode(blocks, values, (int64_t)n);
    }
    free(importance);
    free(blocks);
    free(values);
    return 0;
}
