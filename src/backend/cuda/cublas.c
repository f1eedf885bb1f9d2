/* cuBLAS through dlopen. Its matrices are column-major: our row-major y [n_rows][rows] = x W^T is
 * its y^T [rows x n_rows] = W x^T. What lies in memory is W^T for cuBLAS, hence "T, N". */
#include "backend/cuda/cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* What we need of its interface, which is the same since version 11. */
enum {
    OP_N = 0,
    OP_T = 1,
    REAL_F32 = 0,
    REAL_F16 = 2,
    COMPUTE_F32 = 68,
    ALGO_DEFAULT = -1,
    /* Partial sums of a product split over K are added in fp32 also when the result is fp16. */
    MATH_NO_REDUCED_REDUCTION = 16
};

typedef struct cublasContext *handle;

#define ENTRY_LIST(X)                                                                              \
    X(create, "cublasCreate_v2", (handle *))                                                       \
    X(destroy, "cublasDestroy_v2", (handle))                                                       \
    X(get_version, "cublasGetVersion_v2", (handle, int *))                                         \
    X(set_stream, "cublasSetStream_v2", (handle, struct CUstream_st *))                            \
    X(set_workspace, "cublasSetWorkspace_v2", (handle, void *, size_t))                            \
    X(set_math_mode, "cublasSetMathMode", (handle, int))                                           \
    X(gemm, "cublasGemmEx",                                                                        \
      (handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int,   \
       int, const void *, void *, int, int, int, int))

/* What cuBLAS chooses a kernel for. */
struct product_shape {
    int32_t rows, n_rows, cols, y_type;
};

enum { SHAPES_MAX = 1024 };

struct cublas {
    void *library;
    handle handle;
    int version;
    struct product_shape shapes[SHAPES_MAX]; /* those whose kernels are loaded, */
    int32_t n_shapes;                        /* as far as there is room */
#define X(name, symbol, params) int(*name) params;
    ENTRY_LIST(X)
#undef X
};

/* ---- Finding it ------------------------------------------------------------------------- */

static const char *const versions[] = {"13", "12"};
enum { N_VERSIONS = sizeof versions / sizeof *versions };

/* libcublas needs libcublasLt, which the loader looks for elsewhere: load it first. */
static void *open_in_folder(const char *folder)
{
    char file[4096];
    for (int i = 0; i < N_VERSIONS; i++) {
        snprintf(file, sizeof file, "%s/libcublasLt.so.%s", folder, versions[i]);
        void *light = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        snprintf(file, sizeof file, "%s/libcublas.so.%s", folder, versions[i]);
        void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (light) dlclose(light); /* the library holds on to it */
        if (library) return library;
    }
    return NULL;
}

static void *open_library(const char *path)
{
    static const char *const folders[] = {"/usr/local/cuda/lib64", "/opt/cuda/lib64",
                                          "/usr/lib/x86_64-linux-gnu", "/usr/lib64"};
    void *library = NULL;
    if (path) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = open_in_folder(path);
    }
    for (int i = 0; !library && i < N_VERSIONS; i++) {
        char file[32];
        snprintf(file, sizeof file, "libcublas.so.%s", versions[i]);
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; !library && i < sizeof folders / sizeof *folders; i++)
        library = open_in_folder(folders[i]);
    return library;
}

/* ISO C has no conversion from an object pointer to a function pointer; POSIX says the bytes are
 * the same. */
static bool find_entry(void *library, const char *symbol, void *entry, size_t entry_bytes)
{
    void *at = dlsym(library, symbol);
    if (at && entry_bytes == sizeof at) memcpy(entry, &at, sizeof at);
    return at != NULL;
}

int cublas_open(struct cublas **out, const char *path)
{
    *out = NULL;
    struct cublas *c = mem_alloc(1, sizeof *c);
    if (!c) return -1;
    c->library = open_library(path);
    bool is_there = c->library != NULL;
#define X(name, symbol, params)                                                                    \
    is_there = is_there && find_entry(c->library, symbol, &c->name, sizeof c->name);
    ENTRY_LIST(X)
#undef X
    if (!is_there || c->create(&c->handle)) {
        cublas_close(c);
        return -1;
    }
    c->get_version(c->handle, &c->version);
    if (c->set_math_mode(c->handle, MATH_NO_REDUCED_REDUCTION)) {
        cublas_close(c);
        return -1;
    }
    *out = c;
    return 0;
}

void cublas_close(struct cublas *c)
{
    if (!c) return;
    if (c->handle) c->destroy(c->handle);
    if (c->library) dlclose(c->library);
    mem_free(c);
}

int cublas_version(const struct cublas *c)
{
    return c->version;
}

/* Setting the stream takes the workspace away again, so it comes second. */
int cublas_set_stream(struct cublas *c, const struct queue *q, void *workspace, size_t bytes)
{
    int status = c->set_stream(c->handle, q->stream);
    return status ? status : c->set_workspace(c->handle, workspace, bytes);
}

/* ---- Products --------------------------------------------------------------------------- */

bool cublas_takes(int32_t n_w, bool is_half, bool is_contiguous)
{
    return is_contiguous || n_w == 1 || !is_half;
}

/* Remembers that a product of this shape runs; false: one ran before. */
static bool is_first_of(struct cublas *c, const struct product_shape *shape)
{
    for (int32_t i = 0; i < c->n_shapes; i++)
        if (memcmp(&c->shapes[i], shape, sizeof *shape) == 0) return false;
    if (c->n_shapes < SHAPES_MAX) c->shapes[c->n_shapes++] = *shape;
    return true;
}

/* y [n_rows][y_cols] = x W^T, `rows` rows of W. Kernels are loaded by one product of each shape. */
static int multiply_one(struct cublas *c, const struct queue *q, const struct gemm_args *args,
                        const uint16_t *w, int32_t rows, void *y, int y_type, int32_t y_cols)
{
    const float one = 1, zero = 0;
    int stride = args->x.stride;
    const struct product_shape shape = {rows, args->n_rows, stride, y_type};
    if (q->loads_only && !is_first_of(c, &shape)) return 0;
    return c->gemm(c->handle, OP_T, OP_N, rows, args->n_rows, stride, &one, w, REAL_F16, stride,
                   args->x.values, REAL_F16, stride, &zero, y, y_type, y_cols, COMPUTE_F32,
                   ALGO_DEFAULT);
}

void cublas_multiply(struct cublas *c, const struct queue *q, const struct gemm_args *args)
{
    int status = 0;
    if (args->half) {
        int32_t rows = 0;
        for (int32_t k = 0; k < args->n_w; k++) rows += args->w[k].rows;
        status = multiply_one(c, q, args, args->w[0].mirror, rows, args->half, REAL_F16,
                              args->half_cols);
    }
    for (int32_t k = 0; !args->half && !status && k < args->n_w; k++) {
        int32_t rows = args->w[k].rows;
        status = multiply_one(c, q, args, args->w[k].mirror, rows, args->y[k], REAL_F32, rows);
        if (!status && !args->is_unscaled)
            launch_row_scale(q, args->y[k], args->x.scale, args->n_rows, rows);
    }
    if (status) launch_gemm_f16(q, args);
}
