/* The part of onnxruntime's C interface that noyau uses, written from its published description.
   Its tables only ever grow at their ends, so that a function is identified by its index; the
   assertions below check each index. */
#ifndef NOYAU_ONNXRUNTIME
#define NOYAU_ONNXRUNTIME
#include <stddef.h>
#include <stdint.h>

enum { ORT_API = 17, ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_ARENA_ALLOCATOR = 1, ORT_DEFAULT_MEMORY = 0, ORT_CPU_MEMORY = -2 };
enum { ORT_REQUIRED = 0, ORT_VARIADIC = 2 };

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtShapeInfo OrtShapeInfo; /* OrtTensorTypeAndShapeInfo */
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtShapeInferContext OrtShapeInferContext;
typedef struct OrtCustomOp OrtCustomOp;
typedef void (*OrtUnused)(void);

/* Every function that returns a status returns NULL on success. */
typedef struct {
    OrtStatus *(*CreateStatus)(int code, const char *message);
    OrtUnused from_1[25];
    OrtStatus *(*CreateCustomOpDomain)(const char *name, OrtCustomOpDomain **domain);
    OrtStatus *(*CustomOpDomain_Add)(OrtCustomOpDomain *domain, const OrtCustomOp *op);
    OrtStatus *(*AddCustomOpDomain)(OrtSessionOptions *options, OrtCustomOpDomain *domain);
    OrtUnused from_29[22];
    OrtStatus *(*GetTensorMutableData)(OrtValue *value, void **data);
    OrtUnused from_52[5];
    OrtStatus *(*CreateTensorTypeAndShapeInfo)(OrtShapeInfo **info);
    OrtStatus *(*SetTensorElementType)(OrtShapeInfo *info, int type);
    OrtStatus *(*SetDimensions)(OrtShapeInfo *info, const int64_t *dims, size_t rank);
    OrtUnused from_60[1];
    OrtStatus *(*GetDimensionsCount)(const OrtShapeInfo *info, size_t *rank);
    OrtStatus *(*GetDimensions)(const OrtShapeInfo *info, int64_t *dims, size_t rank);
    OrtUnused from_63[2];
    OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *value, OrtShapeInfo **info);
    OrtUnused from_66[3];
    OrtStatus *(*CreateCpuMemoryInfo)(int allocator, int memory, OrtMemoryInfo **info);
    OrtUnused from_70[5];
    OrtStatus *(*AllocatorAlloc)(OrtAllocator *allocator, size_t bytes, void **memory);
    OrtStatus *(*AllocatorFree)(OrtAllocator *allocator, void *memory);
    OrtUnused from_77[13];
    OrtStatus *(*KernelContext_GetInput)(const OrtKernelContext *, size_t index, const OrtValue **value);
    OrtStatus *(*KernelContext_GetOutput)(OrtKernelContext *, size_t index, const int64_t *dims, size_t rank,
                                          OrtValue **value);
    OrtUnused from_92[1];
    void (*ReleaseStatus)(OrtStatus *status);
    void (*ReleaseMemoryInfo)(OrtMemoryInfo *info);
    OrtUnused from_95[4];
    void (*ReleaseTensorTypeAndShapeInfo)(OrtShapeInfo *info);
    OrtUnused from_100[1];
    void (*ReleaseCustomOpDomain)(OrtCustomOpDomain *domain);
    OrtUnused from_102[30];
    void (*ReleaseAllocator)(OrtAllocator *allocator);
    OrtUnused from_133[60];
    OrtStatus *(*KernelContext_GetGPUComputeStream)(const OrtKernelContext *, void **stream);
    OrtUnused from_194[59];
    OrtStatus *(*KernelContext_GetAllocator)(const OrtKernelContext *, const OrtMemoryInfo *, OrtAllocator **);
    OrtUnused from_254[14];
    OrtStatus *(*ShapeInferContext_GetInputTypeShape)(const OrtShapeInferContext *, size_t index, OrtShapeInfo **);
    OrtUnused from_269[1];
    OrtStatus *(*ShapeInferContext_SetOutputTypeShape)(const OrtShapeInferContext *, size_t index,
                                                       const OrtShapeInfo *info);
    OrtStatus *(*SetSymbolicDimensions)(OrtShapeInfo *info, const char **names, size_t rank);
    OrtUnused from_272[2];
    OrtStatus *(*KernelContext_ParallelFor)(const OrtKernelContext *, void (*piece)(void *user, size_t index),
                                            size_t pieces, size_t batches, void *user);
} OrtApi;

#define ORT_AT(member, place) _Static_assert(offsetof(OrtApi, member) == (place) * sizeof(OrtUnused), #member)
ORT_AT(CreateCustomOpDomain, 26);
ORT_AT(AddCustomOpDomain, 28);
ORT_AT(GetTensorMutableData, 51);
ORT_AT(CreateTensorTypeAndShapeInfo, 57);
ORT_AT(SetDimensions, 59);
ORT_AT(GetDimensionsCount, 61);
ORT_AT(GetDimensions, 62);
ORT_AT(GetTensorTypeAndShape, 65);
ORT_AT(CreateCpuMemoryInfo, 69);
ORT_AT(AllocatorAlloc, 75);
ORT_AT(AllocatorFree, 76);
ORT_AT(KernelContext_GetInput, 90);
ORT_AT(KernelContext_GetOutput, 91);
ORT_AT(ReleaseStatus, 93);
ORT_AT(ReleaseMemoryInfo, 94);
ORT_AT(ReleaseTensorTypeAndShapeInfo, 99);
ORT_AT(ReleaseCustomOpDomain, 101);
ORT_AT(ReleaseAllocator, 132);
ORT_AT(KernelContext_GetGPUComputeStream, 193);
ORT_AT(KernelContext_GetAllocator, 253);
ORT_AT(ShapeInferContext_GetInputTypeShape, 268);
ORT_AT(ShapeInferContext_SetOutputTypeShape, 270);
ORT_AT(SetSymbolicDimensions, 271);
ORT_AT(KernelContext_ParallelFor, 274);

typedef struct {
    const OrtApi *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;

struct OrtCustomOp {
    uint32_t version;
    void *(*CreateKernel)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *);
    const char *(*GetName)(const OrtCustomOp *);
    const char *(*GetExecutionProviderType)(const OrtCustomOp *);
    int (*GetInputType)(const OrtCustomOp *, size_t index);
    size_t (*GetInputTypeCount)(const OrtCustomOp *);
    int (*GetOutputType)(const OrtCustomOp *, size_t index);
    size_t (*GetOutputTypeCount)(const OrtCustomOp *);
    void (*KernelCompute)(void *kernel, OrtKernelContext *);
    void (*KernelDestroy)(void *kernel);
    int (*GetInputCharacteristic)(const OrtCustomOp *, size_t index);
    int (*GetOutputCharacteristic)(const OrtCustomOp *, size_t index);
    int (*GetInputMemoryType)(const OrtCustomOp *, size_t index);
    int (*GetVariadicInputMinArity)(const OrtCustomOp *);
    int (*GetVariadicInputHomogeneity)(const OrtCustomOp *);
    int (*GetVariadicOutputMinArity)(const OrtCustomOp *);
    int (*GetVariadicOutputHomogeneity)(const OrtCustomOp *);
    OrtStatus *(*CreateKernelV2)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *, void **kernel);
    OrtStatus *(*KernelComputeV2)(void *kernel, OrtKernelContext *);
    OrtStatus *(*InferOutputShape)(const OrtCustomOp *, OrtShapeInferContext *);
    int (*GetStartVersion)(const OrtCustomOp *);
    int (*GetEndVersion)(const OrtCustomOp *);
    OrtUnused in_place_and_aliases[4];
};
_Static_assert(sizeof(OrtCustomOp) == 26 * sizeof(OrtUnused), "OrtCustomOp");
#endif
