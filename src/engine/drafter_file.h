/* An open drafter file, for one model. Read-only after open. */
#ifndef ENGINE_DRAFTER_FILE_H
#define ENGINE_DRAFTER_FILE_H

#include "engine/layout.h"
#include "engine/model_file.h"

struct carat_drafter {
    const carat_model *model; /* whose it is */
    struct gguf *gguf;
    struct gemma_config config;
    struct weights weights; /* bound once to check the file; an engine binds its own copy */
    struct weights_file parts;
    struct carat_drafter_info info;
    struct arena arena;
};

#endif
