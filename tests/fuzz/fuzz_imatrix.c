/* Importance matrices in both forms: the input is such a file. What is accepted is read as encoding
 * reads it.
 *
 * Subject: src/gguf/imatrix.c 100 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "gguf/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file in memory that has a path. */
static const char *save(const void *data, size_t n)
{
    static int file = -1;
    static char path[64];
    if (file < 0) file = memfd_create("imatrix", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    carat_assert(ftruncate(file, 0) == 0 && pwrite(file, data, n, 0) == (ssize_t)n);
    return path;
}

static void read_entry(const struct imatrix_entry *e)
{
    int64_t n_rows = e->n_values % e->n_counts == 0 ? e->n_counts : 1, cols = e->n_values / n_rows;
    float *row = mem_alloc((size_t)cols, sizeof *row);
    carat_assert(row && e->n_values > 0);
    for (int64_t i = 0; i < n_rows; i++) {
        imatrix_read(e, i, n_rows, row);
        for (int64_t k = 0; k < cols; k++)
            carat_assert(row[k] > 0.0f && row[k] <= (float)cols * 1.001f);
    }
    mem_free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct imatrix *m;
    struct carat_error err = {0};
    int status = imatrix_open(&m, save(data, size), &err);
    carat_assert(status == CARAT_OK || (status == CARAT_EFORMAT && err.message[0] && !m));
    if (status != CARAT_OK) return 0;
    for (size_t i = 0; i < imatrix_count(m); i++) {
        read_entry(imatrix_at(m, i));
        carat_assert(imatrix_find(m, imatrix_at(m, i)->name) == imatrix_at(m, i));
    }
    carat_assert(imatrix_dataset(m).length <= size);
    (void)imatrix_chunks(m);
    imatrix_close(m);
    return 0;
}
