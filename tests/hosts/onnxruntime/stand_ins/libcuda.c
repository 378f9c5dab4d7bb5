/* Stands in for CUDA's driver where there is no GPU: memory is the host's, launches are lines of the file that
   NOYAU_LAUNCHES names. NOYAU_CAPABILITY: of the device, "90"; NOYAU_FAULT: a function that fails. With OLD_DRIVER it is
   one of CUDA 11. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int context, on_stream;
static int pushed;

static void note(const char *line) {
    FILE *file = fopen(getenv("NOYAU_LAUNCHES"), "a");
    if (!file) abort();
    fprintf(file, "%s\n", line);
    fclose(file);
}
static int fault(const char *name) {
    const char *wanted = getenv("NOYAU_FAULT");
    return wanted && strcmp(wanted, name) == 0 ? 700 : 0;
}

EXPORT int cuInit(unsigned flags) { return (void)flags, 0; }
EXPORT int cuGetErrorName(int status, const char **name) {
    return *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_INVALID_IMAGE", 0;
}
EXPORT int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
EXPORT int cuDevicePrimaryCtxRetain(void **own, int device) { return (void)device, *own = &context, 0; }
EXPORT int cuCtxSetCurrent(void *own) { return own != &context; }
EXPORT int cuCtxGetDevice(int *device) { return *device = 0, 0; }
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *text = getenv("NOYAU_CAPABILITY");
    const int capability = text ? atoi(text) : 90;
    (void)device;
    return *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : -1, 0;
}
EXPORT int cuStreamCreate(void **stream, unsigned flags) { return (void)flags, *stream = &on_stream, 0; }
EXPORT int cuStreamSynchronize(void *stream) {
    if (pushed) note("a context stays pushed");
    return stream != &on_stream;
}
EXPORT int cuStreamGetCtx(void *stream, void **own) { return *own = &context, fault("cuStreamGetCtx") + (stream != &on_stream); }
EXPORT int cuCtxPushCurrent_v2(void *own) { return pushed++, own != &context; }
EXPORT int cuCtxPopCurrent_v2(void **own) { return pushed--, *own = &context, 0; }
EXPORT int cuMemAlloc_v2(uint64_t *memory, size_t bytes) { return *memory = (uint64_t)(uintptr_t)calloc(1, bytes), 0; }
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    return memcpy((void *)(uintptr_t)to, from, bytes), 0;
}
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    return memcpy(to, (const void *)(uintptr_t)from, bytes), 0;
}
EXPORT int cuMemAllocAsync(uint64_t *memory, size_t bytes, void *stream) {
    char line[64];
    snprintf(line, sizeof line, "take %zu", bytes);
    note(line);
    return *memory = (uint64_t)(uintptr_t)calloc(1, bytes), fault("cuMemAllocAsync") + (stream != &on_stream);
}
EXPORT int cuMemFreeAsync(uint64_t memory, void *stream) {
    note("give back");
    return free((void *)(uintptr_t)memory), stream != &on_stream;
}
EXPORT int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                          void **extra) {
    char line[512];
    if (stream != &on_stream || grid_y * grid_z * block_z != 1 || shared_bytes || extra || !arguments) return 1;
    snprintf(line, sizeof line, "launch %s %u %u %u", (const char *)function, grid_x, block_x, block_y);
    note(line);
    return fault("cuLaunchKernel");
}
#ifndef OLD_DRIVER
EXPORT int cuLibraryLoadData(void **library, const void *code, int *options, void **values, unsigned count,
                             int *library_options, void **library_values, unsigned library_count) {
    (void)options, (void)values, (void)library_options, (void)library_values;
    if (count || library_count) return 1;
    const int is_elf = memcmp(code, "\x7f" "ELF", 4) == 0;
    note(is_elf ? "load machine code" : "load PTX");
    *library = (void *)code;
    return is_elf || strstr(code, ".target sm_") ? 0 : 200;
}
EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    char *own = malloc(strlen(name) + 1);
    return (void)library, *kernel = strcpy(own, name), 0;
}
#endif
