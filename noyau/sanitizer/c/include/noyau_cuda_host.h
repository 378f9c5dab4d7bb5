/* The host's side of CUDA: one device, whose work happens in order. */
#ifndef NOYAU_CUDA_HOST_H
#define NOYAU_CUDA_HOST_H

#define NOYAU_ERRORS(is)                                                        \
    is(cudaSuccess, 0, "no error")                                              \
    is(cudaErrorInvalidValue, 1, "invalid argument")                            \
    is(cudaErrorMemoryAllocation, 2, "out of memory")                           \
    is(cudaErrorInitializationError, 3, "initialization error")                 \
    is(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")      \
    is(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")             \
    is(cudaErrorInvalidSymbol, 13, "invalid device symbol")                     \
    is(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version") \
    is(cudaErrorInvalidDeviceFunction, 98, "invalid device function")           \
    is(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")            \
    is(cudaErrorInvalidDevice, 101, "invalid device ordinal")                   \
    is(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")          \
    is(cudaErrorNotReady, 600, "device not ready")                              \
    is(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    is(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch") \
    is(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")  \
    is(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled") \
    is(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")  \
    is(cudaErrorAssert, 710, "device-side assert triggered")                    \
    is(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped") \
    is(cudaErrorLaunchFailure, 719, "unspecified launch failure")               \
    is(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch") \
    is(cudaErrorNotSupported, 801, "operation not supported")                   \
    is(cudaErrorUnknown, 999, "unknown error")
#define NOYAU_NUMBER(name, number, words) name = number,
enum cudaError { NOYAU_ERRORS(NOYAU_NUMBER) };
typedef cudaError cudaError_t;
#define NOYAU_NAME(name, number, words) \
    case name: return #name;
#define NOYAU_WORDS(name, number, words) \
    case name: return words;
static inline const char *cudaGetErrorName(cudaError_t error) {
    switch (error) { NOYAU_ERRORS(NOYAU_NAME) }
    return "unrecognized error code";
}
static inline const char *cudaGetErrorString(cudaError_t error) {
    switch (error) { NOYAU_ERRORS(NOYAU_WORDS) }
    return "unrecognized error code";
}

extern "C" {
int noyau_last_error(int is_taken);
void *noyau_device_memory(int64_t bytes, int is_unified, int unit, const void *pc);
void noyau_device_free(void *at, const void *pc);
void noyau_device_copy(void *to, const void *from, int64_t bytes, const void *pc);
void noyau_device_copy_on(void *to, const void *from, int64_t bytes, const void *pc); /* asynchronous for the host */
void noyau_device_set(void *to, int value, int64_t bytes, const void *pc);
uint32_t noyau_device_time(void);
void noyau_device_wait(uint32_t until);
}
#define NOYAU_HOST static inline cudaError_t
#define NOYAU_AT static inline NOYAU_CALLED cudaError_t
#define NOYAU_DO_NOTHING(name, ...) \
    NOYAU_HOST name(__VA_ARGS__) { return cudaSuccess; }
NOYAU_UNSEEN static inline cudaError_t noyau_wait_all() { return noyau_device_wait(~0u), noyau_stream_host(-1), cudaSuccess; }

/* The device. */
enum cudaComputeMode { cudaComputeModeDefault = 0, cudaComputeModeExclusive = 1, cudaComputeModeProhibited = 2, cudaComputeModeExclusiveProcess = 3 };
enum { cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2, cudaDeviceScheduleBlockingSync = 4, cudaDeviceBlockingSync = 4, cudaDeviceMapHost = 8, cudaDeviceLmemResizeToMax = 16 };
enum { cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2 };
struct cudaUUID_t { char bytes[16]; };
struct cudaDeviceProp {
    char name[256] = "noyau";
    cudaUUID_t uuid = {};
    size_t totalGlobalMem = (size_t)16 << 30, sharedMemPerBlock = 48 * 1024, memPitch = 2147483647, totalConstMem = 64 * 1024;
    size_t sharedMemPerMultiprocessor = 100 * 1024, sharedMemPerBlockOptin = 227 * 1024, reservedSharedMemPerBlock = 1024;
    size_t textureAlignment = 512, texturePitchAlignment = 32, surfaceAlignment = 512;
    int regsPerBlock = 65536, regsPerMultiprocessor = 65536, warpSize = 32, maxThreadsPerBlock = 1024;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {2147483647, 65535, 65535};
    int major = 8, minor = 0, multiProcessorCount = 4, maxThreadsPerMultiProcessor = 1024, maxBlocksPerMultiProcessor = 16;
    int clockRate = 1000000, memoryClockRate = 1000000, memoryBusWidth = 384, l2CacheSize = 4 << 20;
    int persistingL2CacheMaxSize = 3 << 20, accessPolicyMaxWindowSize = 1 << 20;
    int deviceOverlap = 1, kernelExecTimeoutEnabled = 0, integrated = 0, canMapHostMemory = 1, computeMode = 0;
    int concurrentKernels = 1, ECCEnabled = 0, pciBusID = 1, pciDeviceID = 0, pciDomainID = 0, tccDriver = 0;
    int asyncEngineCount = 2, unifiedAddressing = 1, streamPrioritiesSupported = 1, globalL1CacheSupported = 1;
    int localL1CacheSupported = 1, managedMemory = 1, isMultiGpuBoard = 0, multiGpuBoardGroupID = 0;
    int hostNativeAtomicSupported = 0, singleToDoublePrecisionPerfRatio = 2, pageableMemoryAccess = 0;
    int concurrentManagedAccess = 1, computePreemptionSupported = 1, canUseHostPointerForRegisteredMem = 1;
    int cooperativeLaunch = 1, cooperativeMultiDeviceLaunch = 0, directManagedMemAccessFromHost = 0, hostRegisterSupported = 1;
    int memoryPoolsSupported = 1;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY, cudaDevAttrMaxBlockDimZ,
    cudaDevAttrMaxGridDimX, cudaDevAttrMaxGridDimY, cudaDevAttrMaxGridDimZ, cudaDevAttrMaxSharedMemoryPerBlock,
    cudaDevAttrTotalConstantMemory, cudaDevAttrWarpSize, cudaDevAttrMaxPitch, cudaDevAttrMaxRegistersPerBlock,
    cudaDevAttrClockRate, cudaDevAttrTextureAlignment, cudaDevAttrGpuOverlap, cudaDevAttrMultiProcessorCount,
    cudaDevAttrKernelExecTimeout, cudaDevAttrIntegrated, cudaDevAttrCanMapHostMemory, cudaDevAttrComputeMode,
    cudaDevAttrConcurrentKernels = 31, cudaDevAttrEccEnabled = 32, cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37, cudaDevAttrL2CacheSize = 38, cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrAsyncEngineCount = 40, cudaDevAttrUnifiedAddressing = 41, cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76, cudaDevAttrStreamPrioritiesSupported = 78,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrManagedMemory = 83, cudaDevAttrHostNativeAtomicSupported = 86, cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrConcurrentManagedAccess = 89, cudaDevAttrCooperativeLaunch = 95, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106, cudaDevAttrMemoryPoolsSupported = 115,
    cudaDevAttrMemoryPoolSupportedHandleTypes = 119
};
NOYAU_HOST cudaDeviceGetAttribute(int *value, cudaDeviceAttr of, int) {
    const cudaDeviceProp p;
    switch ((int)of) {
        case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
        case cudaDevAttrMaxBlockDimZ: *value = 64; break;
        case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[1]; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
        case cudaDevAttrTotalConstantMemory: *value = (int)p.totalConstMem; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxPitch: *value = (int)p.memPitch; break;
        case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
        case cudaDevAttrClockRate: case cudaDevAttrMemoryClockRate: *value = p.clockRate; break;
        case cudaDevAttrTextureAlignment: *value = 512; break;
        case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
        case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
        case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; break;
        case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
        case cudaDevAttrGpuOverlap: case cudaDevAttrCanMapHostMemory: case cudaDevAttrConcurrentKernels:
        case cudaDevAttrUnifiedAddressing: case cudaDevAttrStreamPrioritiesSupported: case cudaDevAttrManagedMemory:
        case cudaDevAttrConcurrentManagedAccess: case cudaDevAttrCooperativeLaunch: case cudaDevAttrMemoryPoolsSupported:
            *value = 1; break;
        default: *value = 0;
    }
    return cudaSuccess;
}
NOYAU_HOST cudaDeviceSynchronize() {
    noyau_wait_all();
    const int error = noyau_last_error(0);
    return error >= cudaErrorIllegalAddress && error != cudaErrorCooperativeLaunchTooLarge ? (cudaError_t)error : cudaSuccess;
}
NOYAU_HOST cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
NOYAU_HOST cudaGetLastError() { return (cudaError_t)noyau_last_error(1); }
NOYAU_HOST cudaPeekAtLastError() { return (cudaError_t)noyau_last_error(0); }
NOYAU_HOST cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
NOYAU_HOST cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
NOYAU_HOST cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
NOYAU_HOST cudaGetDeviceProperties(cudaDeviceProp *of, int device) { return *of = cudaDeviceProp(), cudaSetDevice(device); }
NOYAU_HOST cudaChooseDevice(int *device, const cudaDeviceProp *) { return *device = 0, cudaSuccess; }
NOYAU_HOST cudaDeviceReset() { return noyau_wait_all(); }
NOYAU_HOST cudaMemGetInfo(size_t *left, size_t *all) { return *left = *all = (size_t)16 << 30, cudaSuccess; }
NOYAU_HOST cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
NOYAU_HOST cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
NOYAU_HOST cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
enum cudaDeviceP2PAttr {
    cudaDevP2PAttrPerformanceRank = 1,
    cudaDevP2PAttrAccessSupported,
    cudaDevP2PAttrNativeAtomicSupported,
    cudaDevP2PAttrCudaArrayAccessSupported
};
NOYAU_HOST cudaDeviceGetP2PAttribute(int *value, cudaDeviceP2PAttr, int, int) { return *value = 0, cudaSuccess; }
NOYAU_HOST cudaDeviceGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, cudaSuccess; }
NOYAU_HOST cudaDeviceGetPCIBusId(char *into, int room, int) { return snprintf(into, (size_t)room, "0000:01:00.0"), cudaSuccess; }
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitDevRuntimeSyncDepth, cudaLimitDevRuntimePendingLaunchCount, cudaLimitMaxL2FetchGranularity, cudaLimitPersistingL2CacheSize };
NOYAU_HOST cudaDeviceGetLimit(size_t *value, cudaLimit) { return *value = 8 << 20, cudaSuccess; }
NOYAU_DO_NOTHING(cudaSetDeviceFlags, unsigned)
NOYAU_DO_NOTHING(cudaDeviceEnablePeerAccess, int, unsigned)
NOYAU_DO_NOTHING(cudaDeviceDisablePeerAccess, int)
NOYAU_DO_NOTHING(cudaDeviceSetLimit, cudaLimit, size_t)
NOYAU_DO_NOTHING(cudaDeviceSetCacheConfig, cudaFuncCache)
NOYAU_DO_NOTHING(cudaDeviceSetSharedMemConfig, cudaSharedMemConfig)
NOYAU_DO_NOTHING(cudaCtxResetPersistingL2Cache)
NOYAU_DO_NOTHING(cudaProfilerStart)
NOYAU_DO_NOTHING(cudaProfilerStop)

/* Memory. */
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2, cudaMemAttachSingle = 4 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2, cudaHostRegisterIoMemory = 4, cudaHostRegisterReadOnly = 8 };
enum cudaMemoryAdvise { cudaMemAdviseSetReadMostly = 1, cudaMemAdviseUnsetReadMostly, cudaMemAdviseSetPreferredLocation, cudaMemAdviseUnsetPreferredLocation, cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy };
enum cudaMemLocationType { cudaMemLocationTypeInvalid, cudaMemLocationTypeDevice, cudaMemLocationTypeHost, cudaMemLocationTypeHostNuma };
struct cudaMemLocation { cudaMemLocationType type; int id; };
template <class T> struct noyau_size_of { enum { bytes = sizeof(T) }; };
template <> struct noyau_size_of<void> { enum { bytes = 0 }; };
#define NOYAU_ALLOCATES(name, is_unified, ...)                                                                \
    template <class T> NOYAU_CALLED cudaError_t name(T **into, size_t bytes __VA_ARGS__) {                    \
        *into = (T *)noyau_device_memory((int64_t)bytes, is_unified, noyau_size_of<T>::bytes, NOYAU_PC);      \
        return *into ? cudaSuccess : cudaErrorMemoryAllocation;                                               \
    }
NOYAU_ALLOCATES(cudaMalloc, 0)
NOYAU_ALLOCATES(cudaMallocAsync, 0, , cudaStream_t)
NOYAU_ALLOCATES(cudaMallocManaged, 1, , unsigned = 0)
NOYAU_ALLOCATES(cudaMallocHost, 1, , unsigned = 0)
NOYAU_ALLOCATES(cudaHostAlloc, 1, , unsigned)
/* Rows begin at multiples of 256 bytes, as on a device. */
template <class T> NOYAU_CALLED cudaError_t cudaMallocPitch(T **into, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + 255) / 256 * 256;
    *into = (T *)noyau_device_memory((int64_t)(*pitch * height), 0, noyau_size_of<T>::bytes, NOYAU_PC);
    return *into ? cudaSuccess : cudaErrorMemoryAllocation;
}
NOYAU_AT cudaFree(void *at) { return noyau_wait_all(), noyau_device_free(at, NOYAU_PC), cudaSuccess; }
NOYAU_AT cudaFreeHost(void *at) { return noyau_wait_all(), noyau_device_free(at, NOYAU_PC), cudaSuccess; }
NOYAU_AT cudaFreeAsync(void *at, cudaStream_t) { return noyau_device_free(at, NOYAU_PC), cudaSuccess; }
NOYAU_AT cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind = cudaMemcpyDefault) {
    noyau_wait_all();
    return noyau_device_copy(to, from, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
NOYAU_AT cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind = cudaMemcpyDefault, cudaStream_t stream = 0) {
    const void *pc = NOYAU_PC;
    return noyau_do(stream, [=]() NOYAU_UNSEEN { noyau_device_copy_on(to, from, (int64_t)bytes, pc); }), cudaSuccess;
}
NOYAU_AT cudaMemcpyPeer(void *to, int, const void *from, int, size_t bytes) {
    return noyau_device_copy(to, from, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
NOYAU_AT cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes, cudaStream_t stream = 0) {
    const void *pc = NOYAU_PC;
    return noyau_do(stream, [=]() NOYAU_UNSEEN { noyau_device_copy_on(to, from, (int64_t)bytes, pc); }), cudaSuccess;
}
NOYAU_AT cudaMemset(void *to, int value, size_t bytes) {
    return noyau_device_set(to, value, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
NOYAU_AT cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream = 0) {
    const void *pc = NOYAU_PC;
    return noyau_do(stream, [=]() NOYAU_UNSEEN { noyau_device_set(to, value, (int64_t)bytes, pc); }), cudaSuccess;
}
NOYAU_UNSEEN static inline void noyau_copy_rows(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width, size_t height, const void *pc) {
    for (size_t i = 0; i < height; ++i)
        noyau_device_copy((char *)to + i * to_pitch, (const char *)from + i * pitch, (int64_t)width, pc);
}
NOYAU_AT cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width, size_t height, cudaMemcpyKind = cudaMemcpyDefault) {
    return noyau_wait_all(), noyau_copy_rows(to, to_pitch, from, pitch, width, height, NOYAU_PC), cudaSuccess;
}
NOYAU_AT cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width, size_t height, cudaMemcpyKind = cudaMemcpyDefault, cudaStream_t stream = 0) {
    const void *pc = NOYAU_PC;
    return noyau_do(stream, [=]() NOYAU_UNSEEN { noyau_copy_rows(to, to_pitch, from, pitch, width, height, pc); }), cudaSuccess;
}
NOYAU_AT cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    for (size_t i = 0; i < height; ++i) noyau_device_set((char *)to + i * pitch, value, (int64_t)width, NOYAU_PC);
    return cudaSuccess;
}
NOYAU_AT cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t = 0) {
    for (size_t i = 0; i < height; ++i) noyau_device_set((char *)to + i * pitch, value, (int64_t)width, NOYAU_PC);
    return cudaSuccess;
}
struct cudaExtent { size_t width, height, depth; };
struct cudaPitchedPtr { void *ptr; size_t pitch, xsize, ysize; };
struct cudaPos { size_t x, y, z; };
typedef struct cudaArray *cudaArray_t;
struct cudaMemcpy3DParms {
    cudaArray_t srcArray = nullptr;
    cudaPos srcPos = {};
    cudaPitchedPtr srcPtr = {};
    cudaArray_t dstArray = nullptr;
    cudaPos dstPos = {};
    cudaPitchedPtr dstPtr = {};
    cudaExtent extent = {};
    cudaMemcpyKind kind = cudaMemcpyHostToHost;
};
static inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) { return {width, height, depth}; }
static inline cudaPitchedPtr make_cudaPitchedPtr(void *at, size_t pitch, size_t x, size_t y) { return {at, pitch, x, y}; }
static inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
NOYAU_AT cudaMalloc3D(cudaPitchedPtr *into, cudaExtent extent) {
    const size_t pitch = (extent.width + 255) / 256 * 256;
    *into = {noyau_device_memory((int64_t)(pitch * extent.height * extent.depth), 0, 0, NOYAU_PC), pitch, extent.width, extent.height};
    return into->ptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
NOYAU_UNSEEN static inline char *noyau_place(cudaPitchedPtr of, cudaPos at, size_t plane) {
    return (char *)of.ptr + (at.z + plane) * of.ysize * of.pitch + at.y * of.pitch + at.x;
}
NOYAU_AT cudaMemcpy3D(const cudaMemcpy3DParms *p) {
    for (size_t z = 0; z < p->extent.depth; ++z)
        noyau_copy_rows(noyau_place(p->dstPtr, p->dstPos, z), p->dstPtr.pitch, noyau_place(p->srcPtr, p->srcPos, z), p->srcPtr.pitch, p->extent.width, p->extent.height, NOYAU_PC);
    return noyau_wait_all();
}
NOYAU_AT cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
    for (size_t i = 0; i < extent.height * extent.depth; ++i) noyau_device_set((char *)to.ptr + i / extent.height * to.ysize * to.pitch + i % extent.height * to.pitch, value, (int64_t)extent.width, NOYAU_PC);
    return cudaSuccess;
}
template <class T> NOYAU_CALLED cudaError_t cudaMemcpyToSymbol(T &to, const void *from, size_t bytes, size_t offset = 0, int = 0) {
    return noyau_device_copy((char *)&to + offset, from, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
template <class T> NOYAU_CALLED cudaError_t cudaMemcpyToSymbolAsync(T &to, const void *from, size_t bytes, size_t offset = 0, int = 0, cudaStream_t = 0) {
    return noyau_device_copy((char *)&to + offset, from, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
template <class T> NOYAU_CALLED cudaError_t cudaMemcpyFromSymbol(void *to, const T &from, size_t bytes, size_t offset = 0, int = 0) {
    noyau_wait_all();
    return noyau_device_copy(to, (const char *)&from + offset, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
template <class T> NOYAU_CALLED cudaError_t cudaMemcpyFromSymbolAsync(void *to, const T &from, size_t bytes, size_t offset = 0, int = 0, cudaStream_t = 0) {
    return noyau_device_copy(to, (const char *)&from + offset, (int64_t)bytes, NOYAU_PC), cudaSuccess;
}
template <class T> static inline cudaError_t cudaGetSymbolAddress(void **into, T &of) { return *into = (void *)&of, cudaSuccess; }
template <class T> static inline cudaError_t cudaGetSymbolSize(size_t *bytes, T &) { return *bytes = sizeof(T), cudaSuccess; }
template <class T> static inline cudaError_t cudaHostGetDevicePointer(T **into, void *of, unsigned) {
    return *into = (T *)of, cudaSuccess;
}
NOYAU_HOST cudaHostRegister(void *at, size_t, unsigned) { return noyau_device_map(at), cudaSuccess; }
NOYAU_DO_NOTHING(cudaHostUnregister, void *)
NOYAU_DO_NOTHING(cudaMemPrefetchAsync, const void *, size_t, int, cudaStream_t = 0)
NOYAU_DO_NOTHING(cudaMemPrefetchAsync, const void *, size_t, cudaMemLocation, unsigned, cudaStream_t = 0)
NOYAU_DO_NOTHING(cudaMemAdvise, const void *, size_t, cudaMemoryAdvise, int)
NOYAU_DO_NOTHING(cudaMemAdvise, const void *, size_t, cudaMemoryAdvise, cudaMemLocation)
NOYAU_DO_NOTHING(cudaStreamAttachMemAsync, cudaStream_t, void *, size_t = 0, unsigned = 4)
typedef struct noyau_pool *cudaMemPool_t;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
NOYAU_HOST cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int) { return *pool = nullptr, cudaSuccess; }
NOYAU_DO_NOTHING(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void *)

/* Streams and events. The host's wait for one is a wait for all its grids: reports on the host are certain. */
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaEventInterprocess = 4 };
struct CUevent_st {
    uint32_t time;
    double at_ms;
    CUgraph_st *records;
    noyau_history history;
};
typedef CUevent_st *cudaEvent_t;
NOYAU_HOST cudaStreamCreateWithPriority(cudaStream_t *made, unsigned flags, int priority) {
    *made = new CUstream_st();
    (*made)->number = noyau_stream_new(flags != cudaStreamNonBlocking);
    return (*made)->priority = priority, cudaSuccess;
}
NOYAU_HOST cudaStreamCreate(cudaStream_t *made) { return cudaStreamCreateWithPriority(made, 0, 0); }
NOYAU_HOST cudaStreamCreateWithFlags(cudaStream_t *made, unsigned flags) { return cudaStreamCreateWithPriority(made, flags, 0); }
NOYAU_HOST cudaStreamGetPriority(cudaStream_t stream, int *priority) { return *priority = (uintptr_t)stream > 2 ? stream->priority : 0, cudaSuccess; }
NOYAU_HOST cudaStreamSynchronize(cudaStream_t stream) { return noyau_device_wait(~0u), noyau_stream_host(noyau_number(stream)), cudaSuccess; }
NOYAU_HOST cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
NOYAU_DO_NOTHING(cudaStreamDestroy, cudaStream_t)
NOYAU_HOST cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
    if ((uintptr_t)stream > 2 && event && event->records && event->records->is_open) stream->records = event->records;
    else if (event && noyau_number(stream) >= 0) noyau_stream_wait(noyau_number(stream), &event->history);
    return cudaSuccess;
}
NOYAU_HOST cudaEventCreate(cudaEvent_t *made) { return *made = new CUevent_st(), cudaSuccess; }
NOYAU_HOST cudaEventCreate(cudaEvent_t *made, unsigned) { return cudaEventCreate(made); }
NOYAU_HOST cudaEventCreateWithFlags(cudaEvent_t *made, unsigned) { return cudaEventCreate(made); }
NOYAU_HOST cudaEventRecord(cudaEvent_t event, cudaStream_t stream = 0) {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (event) *event = {noyau_device_time(), (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6, noyau_recorder(stream), {}};
    if (event) noyau_stream_record(noyau_number(stream), &event->history);
    return cudaSuccess;
}
NOYAU_HOST cudaEventSynchronize(cudaEvent_t event) {
    if (event) noyau_stream_wait(-1, &event->history);
    return noyau_device_wait(event ? event->time : ~0u), cudaSuccess;
}
NOYAU_HOST cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
NOYAU_HOST cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop) {
    if (!start || !stop) return cudaErrorInvalidResourceHandle;
    return *ms = fmaxf((float)(stop->at_ms - start->at_ms), 0.001f), cudaSuccess;
}
NOYAU_DO_NOTHING(cudaEventDestroy, cudaEvent_t)
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void *);
typedef void (*cudaHostFn_t)(void *);
NOYAU_HOST cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t f, void *data, unsigned) {
    return noyau_do(stream, [=]() { noyau_wait_all(), f(stream, cudaSuccess, data); }), cudaSuccess;
}
NOYAU_HOST cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *data) {
    return noyau_do(stream, [=]() { noyau_wait_all(), f(data); }), cudaSuccess;
}
enum cudaAccessProperty { cudaAccessPropertyNormal, cudaAccessPropertyStreaming, cudaAccessPropertyPersisting };
struct cudaAccessPolicyWindow { void *base_ptr; size_t num_bytes; float hitRatio; cudaAccessProperty hitProp, missProp; };
union cudaStreamAttrValue {
    cudaAccessPolicyWindow accessPolicyWindow;
    int priority;
};
enum cudaStreamAttrID { cudaStreamAttributeAccessPolicyWindow = 1, cudaStreamAttributePriority = 8 };
NOYAU_DO_NOTHING(cudaStreamSetAttribute, cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue *)

/* Kernels. */
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
struct cudaFuncAttributes {
    size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0;
    int maxThreadsPerBlock = 1024, numRegs = 32, ptxVersion = 80, binaryVersion = 80, cacheModeCA = 0;
    int maxDynamicSharedSizeBytes = 48 * 1024, preferredShmemCarveout = -1;
};
template <class F> static inline cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int) { return cudaSuccess; }
template <class F> static inline cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F> static inline cudaError_t cudaFuncSetSharedMemConfig(F, cudaSharedMemConfig) { return cudaSuccess; }
template <class F> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *of, F) { return *of = cudaFuncAttributes(), cudaSuccess; }
template <class F> static inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, F, size_t = 0, int limit = 0) {
    return *block = limit > 0 && limit < 256 ? limit : 256, *grid = 4 * (1024 / *block), cudaSuccess;
}
template <class S, class F> static inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int *grid, int *block, F f, S, int limit = 0) {
    return cudaOccupancyMaxPotentialBlockSize(grid, block, f, 0, limit);
}
template <class F> static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F, int threads, size_t) {
    return *blocks = threads > 0 ? 1024 / threads : 0, cudaSuccess;
}
template <class F> static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, F f, int threads, size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared);
}
NOYAU_UNSEEN static inline cudaError_t noyau_launch(const void *kernel, dim3 grid, dim3 block, void **given, size_t shared, cudaStream_t stream, int cooperates, const void *pc) {
    noyau_grid whole(grid, block, shared, stream);
    whole.cooperates = cooperates;
    noyau_task_at(kernel, whole, given, pc)->run();
    return (cudaError_t)noyau_last_error(0);
}
template <class... P> NOYAU_UNSEEN const void *noyau_address(void (*kernel)(P...)) { return noyau_kernel(kernel); }
static inline const void *noyau_address(const void *kernel) { return kernel; }
template <class F> NOYAU_CALLED cudaError_t cudaLaunchKernel(F kernel, dim3 grid, dim3 block, void **given, size_t shared = 0, cudaStream_t stream = 0) {
    return noyau_launch(noyau_address(kernel), grid, block, given, shared, stream, 0, NOYAU_PC);
}
template <class F> NOYAU_CALLED cudaError_t cudaLaunchCooperativeKernel(F kernel, dim3 grid, dim3 block, void **given, size_t shared = 0, cudaStream_t stream = 0) {
    return noyau_launch(noyau_address(kernel), grid, block, given, shared, stream, 1, NOYAU_PC);
}
enum cudaLaunchAttributeID { cudaLaunchAttributeIgnore, cudaLaunchAttributeAccessPolicyWindow, cudaLaunchAttributeCooperative, cudaLaunchAttributePriority = 8 };
union cudaLaunchAttributeValue {
    int cooperative, priority;
    cudaAccessPolicyWindow accessPolicyWindow;
};
struct cudaLaunchAttribute { cudaLaunchAttributeID id; cudaLaunchAttributeValue val; };
/* The members gridDim and blockDim, which build.py renames, since the words of CUDA are macros here. */
struct cudaLaunchConfig_t { dim3 of_gridDim, of_blockDim; size_t dynamicSmemBytes = 0; cudaStream_t stream = nullptr; cudaLaunchAttribute *attrs = nullptr; unsigned numAttrs = 0; };
template <class... P, class... Given> NOYAU_CALLED cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), Given &&...given) {
    noyau_grid whole(config->of_gridDim, config->of_blockDim, config->dynamicSmemBytes, config->stream);
    for (unsigned i = 0; i < config->numAttrs; ++i)
        if (config->attrs[i].id == cudaLaunchAttributeCooperative) whole.cooperates = config->attrs[i].val.cooperative;
    whole.at(NOYAU_PC, kernel, std::tuple<P...>(P(given)...));
    return (cudaError_t)noyau_last_error(0);
}

/* Graphs: recorded work runs in the order of recording. */
typedef CUgraph_st *cudaGraph_t;
typedef CUgraphNode_st *cudaGraphNode_t;
struct CUgraphExec_st { cudaGraph_t graph; };
typedef CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
enum cudaGraphExecUpdateResult { cudaGraphExecUpdateSuccess, cudaGraphExecUpdateError };
struct cudaGraphExecUpdateResultInfo { cudaGraphExecUpdateResult result; cudaGraphNode_t errorNode, errorFromNode; };
struct cudaKernelNodeParams { void *func; dim3 of_gridDim, of_blockDim; unsigned sharedMemBytes; void **kernelParams; void **extra; };
struct cudaMemsetParams { void *dst; size_t pitch; unsigned value, elementSize; size_t width, height; };
struct cudaHostNodeParams { cudaHostFn_t fn; void *userData; };
NOYAU_HOST cudaGraphCreate(cudaGraph_t *made, unsigned) { return *made = new CUgraph_st(), cudaSuccess; }
NOYAU_HOST cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode = cudaStreamCaptureModeGlobal) {
    if ((uintptr_t)stream <= 2) return cudaErrorNotSupported;
    cudaGraphCreate(&stream->records, 0);
    return stream->records->is_open = true, cudaSuccess;
}
NOYAU_HOST cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *made) {
    *made = stream->records;
    return (*made)->is_open = false, stream->records = nullptr, cudaSuccess;
}
NOYAU_HOST cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    return *status = noyau_recorder(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, cudaSuccess;
}
template <class F> NOYAU_HOST noyau_add(cudaGraphNode_t *made, cudaGraph_t graph, F what) {
    return *made = graph->add(new noyau_task_of<F>(what)), cudaSuccess;
}
#define NOYAU_NODE cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *, size_t
NOYAU_AT cudaGraphAddKernelNode(NOYAU_NODE, const cudaKernelNodeParams *p) {
    *made = graph->add(noyau_task_at(p->func, noyau_grid(p->of_gridDim, p->of_blockDim, p->sharedMemBytes), p->kernelParams, NOYAU_PC));
    return cudaSuccess;
}
NOYAU_AT cudaGraphExecKernelNodeSetParams(cudaGraphExec_t, cudaGraphNode_t node, const cudaKernelNodeParams *p) {
    node->task = noyau_task_at(p->func, noyau_grid(p->of_gridDim, p->of_blockDim, p->sharedMemBytes), p->kernelParams, NOYAU_PC);
    return cudaSuccess;
}
NOYAU_AT cudaGraphAddMemcpyNode1D(NOYAU_NODE, void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    const void *pc = NOYAU_PC;
    return noyau_add(made, graph, [=]() { noyau_device_copy(to, from, (int64_t)bytes, pc); });
}
NOYAU_AT cudaGraphAddMemcpyNode(NOYAU_NODE, const cudaMemcpy3DParms *given) {
    const cudaMemcpy3DParms p = *given;
    return noyau_add(made, graph, [=]() { cudaMemcpy3D(&p); });
}
NOYAU_AT cudaGraphAddMemsetNode(NOYAU_NODE, const cudaMemsetParams *given) {
    const cudaMemsetParams p = *given;
    return noyau_add(made, graph, [=]() { cudaMemset2D(p.dst, p.pitch, (int)p.value, p.width * p.elementSize, p.height); });
}
NOYAU_HOST cudaGraphAddHostNode(NOYAU_NODE, const cudaHostNodeParams *given) {
    const cudaHostNodeParams p = *given;
    return noyau_add(made, graph, [=]() { noyau_wait_all(), p.fn(p.userData); });
}
NOYAU_HOST cudaGraphAddEmptyNode(NOYAU_NODE) { return noyau_add(made, graph, []() {}); }
NOYAU_DO_NOTHING(cudaGraphAddDependencies, cudaGraph_t, const cudaGraphNode_t *, const cudaGraphNode_t *, size_t)
NOYAU_HOST cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *into, size_t *count) {
    size_t i = 0;
    for (cudaGraphNode_t each = graph->first; into && each && i < *count; each = each->next) into[i++] = each;
    return *count = into ? i : graph->count, cudaSuccess;
}
NOYAU_HOST cudaGraphClone(cudaGraph_t *made, cudaGraph_t graph) {
    cudaGraphCreate(made, 0);
    for (cudaGraphNode_t each = graph->first; each; each = each->next) (*made)->add(each->task);
    return cudaSuccess;
}
template <class... More> NOYAU_HOST cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, More...) {
    return *made = new CUgraphExec_st{graph}, cudaSuccess;
}
NOYAU_HOST cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) { return cudaGraphInstantiate(made, graph); }
template <class... More> NOYAU_HOST cudaGraphExecUpdate(cudaGraphExec_t of, cudaGraph_t graph, More...) { return of->graph = graph, cudaSuccess; }
NOYAU_HOST cudaGraphLaunch(cudaGraphExec_t of, cudaStream_t stream) {
    noyau_do(stream, [=]() { for (cudaGraphNode_t each = of->graph->first; each; each = each->next) each->task->run(); }, 0);
    return cudaSuccess;
}
NOYAU_DO_NOTHING(cudaGraphUpload, cudaGraphExec_t, cudaStream_t)
NOYAU_DO_NOTHING(cudaGraphDestroy, cudaGraph_t)
NOYAU_DO_NOTHING(cudaGraphExecDestroy, cudaGraphExec_t)
#undef NOYAU_NODE

#endif
