/* Kernels of CUDA on the stream of a session. The driver is opened when a session first needs it, so that the library
   itself loads where there is none; code is loaded once for all sessions, and stays. */
#ifndef NOYAU_GRIDS
#define NOYAU_GRIDS
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_CAPABILITY_MAJOR = 75, CUDA_CAPABILITY_MINOR = 76 }; /* CUdevice_attribute */
static const int64_t MOST_BLOCKS = 2147483647;                   /* of a grid */

/* The functions of CUDA's driver, which return 0 on success; functions new in CUDA 12 are last. */
static struct {
    int (*cuInit)(unsigned flags);
    int (*cuGetErrorName)(int status, const char **name);
    int (*cuCtxGetDevice)(int *device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int (*cuStreamGetCtx)(void *stream, void **context);
    int (*cuCtxPushCurrent_v2)(void *context);
    int (*cuCtxPopCurrent_v2)(void **context);
    int (*cuMemAllocAsync)(uint64_t *memory, size_t bytes, void *stream);
    int (*cuMemFreeAsync)(uint64_t memory, void *stream);
    int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                          void **extra);
    int (*cuLibraryLoadData)(void **library, const void *code, int *options, void **values, unsigned count,
                             int *library_options, void **library_values, unsigned library_count);
    int (*cuLibraryGetKernel)(void **kernel, void *library, const char *name);
} driver;

static const char *const driver_functions[] = {
    "cuInit", "cuGetErrorName", "cuCtxGetDevice", "cuDeviceGetAttribute", "cuStreamGetCtx", "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2", "cuMemAllocAsync", "cuMemFreeAsync", "cuLaunchKernel", "cuLibraryLoadData",
    "cuLibraryGetKernel",
};
_Static_assert(sizeof driver == sizeof driver_functions, "a name for each function");

/* A grid of this library; `kernels`: for each code the kernels of its launches, once they are loaded. */
typedef struct {
    const noyau_grid *grid;
    void ***kernels;
} loaded_grid;

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static int driver_is_open;

static OrtStatus *grid_failure(const OrtApi *api, const noyau_grid *grid, const char *format, ...) {
    char message[512];
    const int begin = snprintf(message, sizeof message, "noyau::%s: ", grid->table.name);
    va_list values;
    va_start(values, format);
    vsnprintf(message + begin, sizeof message - (size_t)begin, format, values);
    va_end(values);
    return api->CreateStatus(ORT_FAIL, message);
}

static OrtStatus *driver_failure(const OrtApi *api, const noyau_grid *grid, const char *function, int status) {
    const char *name = NULL;
    driver.cuGetErrorName(status, &name);
    return grid_failure(api, grid, "%s of CUDA's driver ends with %s (%d)", function, name ? name : "an error", status);
}

/* Opens the driver once; the caller holds `loading`. */
static OrtStatus *open_driver(const OrtApi *api, const noyau_grid *grid) {
    if (driver_is_open) return NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        return grid_failure(api, grid, "there is no CUDA driver here (%s); leave the library out, and the model runs "
                            "without it", reason ? reason : "libcuda.so.1");
    }
    for (size_t i = 0; i < sizeof driver / sizeof(void *); i++) {
        void *function = dlsym(library, driver_functions[i]);
        if (!function)
            return grid_failure(api, grid, "the CUDA driver has no %s: it needs one of CUDA 12 or newer",
                                driver_functions[i]);
        memcpy((char *)&driver + i * sizeof function, &function, sizeof function);
    }
    const int status = driver.cuInit(0);
    if (status) return driver_failure(api, grid, "cuInit", status);
    driver_is_open = 1;
    return NULL;
}

/* The code for a device of an architecture: machine code of its generation, the newest that it can run, else PTX;
   -1 without any. */
static int code_for(const noyau_grid *grid, int architecture) {
    int best = -1;
    for (int i = 0; i < grid->code_count; i++) {
        const noyau_code *code = &grid->codes[i], *before = best < 0 ? NULL : &grid->codes[best];
        const int fits = code->architecture <= architecture
                         && (code->is_ptx || code->architecture / 10 == architecture / 10);
        if (!fits || (before && before->is_ptx < code->is_ptx)) continue;
        if (!before || before->is_ptx > code->is_ptx || before->architecture < code->architecture) best = i;
    }
    return best;
}

static OrtStatus *no_code(const OrtApi *api, const noyau_grid *grid, int architecture) {
    char known[128] = "";
    for (int i = 0, used = 0; i < grid->code_count && used < 100; i++)
        used += snprintf(known + used, sizeof known - (size_t)used, "%s%s_%d", i ? ", " : "",
                         grid->codes[i].is_ptx ? "compute" : "sm", (int)grid->codes[i].architecture);
    return grid_failure(api, grid, "the library has no code for sm_%d, it has %s: build it with --target sm_%d, or "
                        "leave it out, and the model runs without it", architecture, known, architecture);
}

/* Loads the kernels of a code; the caller holds `loading`. */
static OrtStatus *load_code(const OrtApi *api, loaded_grid *loaded, int code) {
    const noyau_grid *grid = loaded->grid;
    void *library = NULL, **kernels = calloc((size_t)grid->table.launches + 1, sizeof *kernels);
    if (!kernels) return grid_failure(api, grid, "out of memory");
    int status = driver.cuLibraryLoadData(&library, grid->codes[code].content, NULL, NULL, 0, NULL, NULL, 0);
    for (int32_t i = 0; !status && i < grid->table.launches; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s_%d", grid->table.name, (int)i);
        status = driver.cuLibraryGetKernel(&kernels[i], library, name);
    }
    if (status) {
        free(kernels);
        return driver_failure(api, grid, "cuLibraryLoadData", status);
    }
    loaded->kernels[code] = kernels;
    return NULL;
}

/* The kernels for the device of the current context, in `kernels`; none and no failure where there is no context. */
static OrtStatus *find_kernels(const OrtApi *api, loaded_grid *loaded, void ***kernels) {
    int device = 0, major = 0, minor = 0, code = 0;
    pthread_mutex_lock(&loading);
    OrtStatus *failure = open_driver(api, loaded->grid);
    *kernels = NULL;
    if (!failure && !driver.cuCtxGetDevice(&device)) {
        int status = driver.cuDeviceGetAttribute(&major, CUDA_CAPABILITY_MAJOR, device);
        if (!status) status = driver.cuDeviceGetAttribute(&minor, CUDA_CAPABILITY_MINOR, device);
        code = code_for(loaded->grid, 10 * major + minor);
        if (status) failure = driver_failure(api, loaded->grid, "cuDeviceGetAttribute", status);
        else if (code < 0) failure = no_code(api, loaded->grid, 10 * major + minor);
        else if (!loaded->kernels[code]) failure = load_code(api, loaded, code);
        if (!failure) *kernels = loaded->kernels[code];
    }
    pthread_mutex_unlock(&loading);
    return failure;
}

/* Launches a kernel's grids in order on the stream, in whose order its scratch is allocated and freed too. */
static OrtStatus *launch_grids(const OrtApi *api, const noyau_grid *grid, void *const *kernels, void **arguments,
                               void **buffers, const int64_t *sizes, void *stream) {
    const noyau_kernel *table = &grid->table;
    uint64_t memory[table->scratch + 1];
    const char *function = "cuMemAllocAsync";
    int status = 0;
    int32_t taken = 0;
    for (; !status && taken < table->scratch; taken += !status) {
        const int64_t bytes = table->scratch_bytes(sizes, taken);
        status = driver.cuMemAllocAsync(&memory[taken], bytes > 0 ? (size_t)bytes : 1, stream);
        if (!status) buffers[table->inputs + table->outputs + taken] = (void *)(uintptr_t)memory[taken];
    }
    for (int32_t i = 0; !status && i < table->launches; i++) {
        const noyau_block *block = &grid->blocks[i];
        const int64_t items = table->extent(sizes, i), most = MOST_BLOCKS / block->blocks;
        if (items <= 0) continue;
        const int64_t needed = (items - 1) / block->rows + 1;
        const unsigned blocks = (unsigned)((needed < most ? needed : most) * block->blocks);
        function = "cuLaunchKernel";
        status = driver.cuLaunchKernel(kernels[i], blocks, 1, 1, (unsigned)block->threads, (unsigned)block->rows, 1, 0,
                                       stream, arguments, NULL);
    }
    for (int32_t i = 0; i < taken; i++) {
        const int freed = driver.cuMemFreeAsync(memory[i], stream);
        if (freed && !status) status = freed, function = "cuMemFreeAsync";
    }
    return status ? driver_failure(api, grid, function, status) : NULL;
}

/* Runs a grid on the stream of a kernel's context. `buffers` has room for the scratch. */
static OrtStatus *run_grid(const OrtApi *api, loaded_grid *loaded, OrtKernelContext *context, void **buffers,
                           int64_t *sizes) {
    const noyau_kernel *table = &loaded->grid->table;
    const int32_t count = table->inputs + table->outputs + table->scratch;
    void *arguments[count + table->sizes + 1], **kernels, *stream = NULL, *own = NULL;
    for (int32_t i = 0; i < count; i++) arguments[i] = &buffers[i];
    for (int32_t i = 0; i < table->sizes; i++) arguments[count + i] = &sizes[i];
    OrtStatus *failure = api->KernelContext_GetGPUComputeStream(context, &stream);
    if (failure) return failure;
    int status = driver.cuStreamGetCtx(stream, &own); /* the creation of the node has opened the driver */
    if (!status) status = driver.cuCtxPushCurrent_v2(own);
    if (status) return driver_failure(api, loaded->grid, "cuStreamGetCtx", status);
    failure = find_kernels(api, loaded, &kernels);
    if (!failure) failure = launch_grids(api, loaded->grid, kernels, arguments, buffers, sizes, stream);
    driver.cuCtxPopCurrent_v2(&own);
    return failure;
}
#endif
