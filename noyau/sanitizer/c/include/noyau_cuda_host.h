/* The host's side of CUDA: one device, one thing after the other. */
#ifndef NOYAU_CUDA_HOST_H
#define NOYAU_CUDA_HOST_H

typedef int cudaError_t, cudaError;
typedef struct noyau_stream *cudaStream_t;
typedef struct noyau_event *cudaEvent_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600 };
enum { cudaErrorInvalidConfiguration = 9 };
extern "C" int noyau_last_error(int is_taken);
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1 };
enum { cudaEventDisableTiming = 2, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
enum { cudaMemAttachGlobal = 1, cudaCpuDeviceId = -1, cudaHostRegisterDefault = 0 };
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
struct cudaDeviceProp {
    char name[256] = "noyau";
    int multiProcessorCount = 4, warpSize = 32, maxThreadsPerBlock = 1024, major = 8, minor = 0;
    int maxThreadsPerMultiProcessor = 2048, clockRate = 1000000, memoryClockRate = 1000000, memoryBusWidth = 384;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {2147483647, 65535, 65535}, regsPerBlock = 65536;
    int concurrentKernels = 1, unifiedAddressing = 1, managedMemory = 1, cooperativeLaunch = 0, l2CacheSize = 4 << 20;
    size_t sharedMemPerBlock = 48 * 1024, totalGlobalMem = (size_t)16 << 30, totalConstMem = 64 * 1024;
    size_t sharedMemPerMultiprocessor = 100 * 1024, memPitch = 2147483647;
};
template <class T> NOYAU_CALLED cudaError_t cudaMalloc(T **into, size_t bytes) {
    *into = (T *)noyau_device_memory((int64_t)bytes, 0, NOYAU_PC);
    return *into ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T> NOYAU_CALLED cudaError_t cudaMallocManaged(T **into, size_t bytes, unsigned = 0) {
    *into = (T *)noyau_device_memory((int64_t)bytes, 1, NOYAU_PC);
    return *into ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T> NOYAU_CALLED cudaError_t cudaMallocHost(T **into, size_t bytes, unsigned = 0) {
    *into = (T *)noyau_device_memory((int64_t)bytes, 1, NOYAU_PC);
    return *into ? cudaSuccess : cudaErrorMemoryAllocation;
}
NOYAU_STATIC cudaError_t cudaFree(void *at) { return noyau_device_free(at, NOYAU_PC), cudaSuccess; }
NOYAU_STATIC cudaError_t cudaFreeHost(void *at) { return noyau_device_free(at, NOYAU_PC), cudaSuccess; }
NOYAU_STATIC cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind = cudaMemcpyDefault) {
    return noyau_device_copy(to, from, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
NOYAU_STATIC cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t = 0) {
    return noyau_device_copy(to, from, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
NOYAU_STATIC cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    return noyau_device_set(to, value, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
NOYAU_STATIC cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t = 0) {
    return noyau_device_set(to, value, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
template <class T>
NOYAU_CALLED cudaError_t cudaMemcpyToSymbol(T &to, const void *from, size_t bytes, size_t offset = 0, int = 0) {
    return noyau_device_copy((char *)&to + offset, from, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
template <class T>
NOYAU_CALLED cudaError_t cudaMemcpyFromSymbol(void *to, const T &from, size_t bytes, size_t offset = 0, int = 0) {
    return noyau_device_copy(to, (const char *)&from + offset, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
static inline cudaError_t cudaGetLastError() { return noyau_last_error(1); }
static inline cudaError_t cudaPeekAtLastError() { return noyau_last_error(0); }
static inline const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess                     ? "no error"
           : error == cudaErrorInvalidValue         ? "invalid argument"
           : error == cudaErrorMemoryAllocation     ? "out of memory"
           : error == cudaErrorInvalidConfiguration ? "invalid configuration argument"
                                                    : "unrecognized error code";
}
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *of, int) { return *of = cudaDeviceProp(), cudaSuccess; }
static inline cudaError_t cudaStreamCreate(cudaStream_t *made) { return *made = 0, cudaSuccess; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaEventCreate(cudaEvent_t *made) { return *made = 0, cudaSuccess; }
static inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = 0) { return cudaSuccess; }
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { return *ms = 0, cudaSuccess; }
static inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
template <class F> static inline cudaError_t cudaFuncSetAttribute(F, int, int) { return cudaSuccess; }
template <class T> NOYAU_CALLED cudaError_t cudaHostAlloc(T **into, size_t bytes, unsigned) {
    *into = (T *)noyau_device_memory((int64_t)bytes, 1, NOYAU_PC);
    return *into ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T> NOYAU_CALLED cudaError_t cudaMallocAsync(T **into, size_t bytes, cudaStream_t) {
    *into = (T *)noyau_device_memory((int64_t)bytes, 0, NOYAU_PC);
    return *into ? cudaSuccess : cudaErrorMemoryAllocation;
}
/* Rows begin at multiples of 256 bytes, as on a device. */
template <class T> NOYAU_CALLED cudaError_t cudaMallocPitch(T **into, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + 255) / 256 * 256;
    *into = (T *)noyau_device_memory((int64_t)(*pitch * height), 0, NOYAU_PC);
    return *into ? cudaSuccess : cudaErrorMemoryAllocation;
}
NOYAU_STATIC cudaError_t cudaFreeAsync(void *at, cudaStream_t) { return noyau_device_free(at, NOYAU_PC), cudaSuccess; }
NOYAU_STATIC cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width,
                                      size_t height, cudaMemcpyKind = cudaMemcpyDefault) {
    for (size_t i = 0; i < height; ++i)
        noyau_device_copy((char *)to + i * to_pitch, (const char *)from + i * pitch, (int64_t)width, NOYAU_PC);
    return cudaSuccess;
}
template <class T> static inline cudaError_t cudaGetSymbolAddress(void **into, T &of) { return *into = (void *)&of, cudaSuccess; }
template <class T> static inline cudaError_t cudaHostGetDevicePointer(T **into, void *of, unsigned) {
    return *into = (T *)of, cudaSuccess;
}
static inline cudaError_t cudaHostRegister(void *, size_t, unsigned) { return cudaSuccess; }
static inline cudaError_t cudaHostUnregister(void *) { return cudaSuccess; }
static inline const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaSuccess                     ? "cudaSuccess"
           : error == cudaErrorInvalidValue         ? "cudaErrorInvalidValue"
           : error == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
           : error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
                                                    : "cudaErrorUnknown";
}
static inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
static inline cudaError_t cudaThreadSynchronize() { return cudaSuccess; }
static inline cudaError_t cudaMemGetInfo(size_t *left, size_t *all) { return *left = *all = (size_t)16 << 30, cudaSuccess; }
static inline cudaError_t cudaMemPrefetchAsync(const void *, size_t, int, cudaStream_t = 0) { return cudaSuccess; }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *made, unsigned) { return *made = 0, cudaSuccess; }
static inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned, int) { return *made = 0, cudaSuccess; }
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
static inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned) { return *made = 0, cudaSuccess; }
static inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
template <class F> static inline cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
static inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
static inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16
};
static inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr of, int) {
    const cudaDeviceProp p;
    *value = of == cudaDevAttrMaxThreadsPerBlock ? 1024 : of == cudaDevAttrWarpSize ? 32 : of == cudaDevAttrMultiProcessorCount ? p.multiProcessorCount : (int)p.sharedMemPerBlock;
    return cudaSuccess;
}
template <class F>
static inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, F, size_t = 0, int limit = 0) {
    return *grid = 8, *block = limit > 0 && limit < 256 ? limit : 256, cudaSuccess;
}
template <class F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F, int threads, size_t) {
    return *blocks = threads > 0 ? 2048 / threads : 0, cudaSuccess;
}

#endif
