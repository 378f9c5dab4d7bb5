/* Serves noyau's kernels to onnxruntime as operators of a domain. Before this text stand
   noyau.h, shares.h, onnxruntime.h, cpu_check.h and the table `noyau_kernels`; where there are kernels of CUDA too,
   noyau_grid.h, grids.h and the table `noyau_grids`, each for the kernel at its place. It is compiled for the oldest CPU,
   because it decides whether this CPU may run the kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KERNELS = sizeof noyau_kernels / sizeof noyau_kernels[0] };
enum { STACK_SCRATCH = 4096 };
#ifndef NOYAU_GRIDS
typedef struct loaded_grid loaded_grid; /* without a definition: there are none */
enum { GRIDS = 0 };
#else
enum { GRIDS = KERNELS };
_Static_assert(sizeof noyau_grids / sizeof noyau_grids[0] == KERNELS, "a grid for each kernel");
static loaded_grid loaded_grids[GRIDS];
#endif

/* One operator of a provider: its description for onnxruntime, the kernel's table, and on a GPU its code. */
typedef struct {
    OrtCustomOp op;
    const noyau_kernel *kernel;
    loaded_grid *loaded;
} operator_entry;

/* One node of one session. Runs only read it, so that they may overlap. */
typedef struct {
    const OrtApi *api;
    const noyau_kernel *kernel;
    loaded_grid *loaded; /* on a GPU */
    OrtMemoryInfo *memory;
    int32_t input_dims; /* ranks of all inputs together */
    int32_t most_dims;  /* highest rank of an output */
    int cores;          /* of this machine: the most threads of a launch */
} node_state;

/* ---- one run of a node ---- */

static void run_as_piece(void *work, size_t index) {
    (void)index; /* each thread takes the next share */
    run_shares(work);
}

static OrtStatus *run_failure(const node_state *state, int status) {
    char message[256];
    const char *reason = status == NOYAU_INDEX_OUT_OF_BOUNDS ? "an index is out of bounds"
                         : status == NOYAU_OUT_OF_MEMORY     ? "out of memory"
                                                             : "the kernel failed";
    snprintf(message, sizeof message, "noyau::%s: %s", state->kernel->name, reason);
    return state->api->CreateStatus(status == NOYAU_OUT_OF_MEMORY ? ORT_FAIL : ORT_INVALID_ARGUMENT, message);
}

static OrtStatus *run_launches(const node_state *state, OrtKernelContext *context, noyau_call *call) {
    const noyau_kernel *kernel = state->kernel;
    for (call->launch = 0; call->launch < kernel->launches; call->launch++) {
        const int64_t extent = kernel->extent(call->sizes, call->launch);
        if (extent <= 0) continue;
        launch_work work;
        share_out(&work, kernel, call, extent, kernel->item_bytes(call->sizes, call->launch), state->cores);
        if (work.shares == 1) {
            run_shares(&work);
        } else {
            const size_t threads = (size_t)work.shares;
            OrtStatus *failure = state->api->KernelContext_ParallelFor(context, run_as_piece, threads, threads, &work);
            if (failure) return failure;
        }
        const int status = atomic_load(&work.status);
        if (status != NOYAU_OK) return run_failure(state, status);
    }
    return NULL;
}

/* Runs with scratch of `bytes[i]` each, from the stack where it is small, else from onnxruntime's arena. */
static OrtStatus *run_with_scratch(const node_state *state, OrtKernelContext *context, noyau_call *call,
                                   void **scratch, const int64_t *bytes, int64_t total) {
    _Alignas(LINE) unsigned char small[STACK_SCRATCH];
    const OrtApi *api = state->api;
    OrtAllocator *allocator = NULL;
    void *memory = small;
    OrtStatus *failure = NULL;
    if (total > STACK_SCRATCH) {
        failure = api->KernelContext_GetAllocator(context, state->memory, &allocator);
        if (failure) return failure;
        failure = api->AllocatorAlloc(allocator, (size_t)total + LINE, &memory);
    }
    if (!failure) {
        unsigned char *next = (unsigned char *)(((uintptr_t)memory + LINE - 1) / LINE * LINE);
        for (int32_t i = 0; i < state->kernel->scratch; i++) {
            scratch[i] = next;
            next += (bytes[i] + LINE - 1) / LINE * LINE;
        }
        failure = run_launches(state, context, call);
    }
    if (allocator) {
        if (memory && memory != small) {
            OrtStatus *ignored = api->AllocatorFree(allocator, memory);
            if (ignored) api->ReleaseStatus(ignored);
        }
        api->ReleaseAllocator(allocator);
    }
    return failure;
}

static OrtStatus *prepare_scratch(const node_state *state, OrtKernelContext *context, noyau_call *call,
                                  void **scratch) {
    const noyau_kernel *kernel = state->kernel;
    if (kernel->scratch == 0) return run_launches(state, context, call);
    int64_t bytes[kernel->scratch], total = 0;
    for (int32_t i = 0; i < kernel->scratch; i++) {
        bytes[i] = kernel->scratch_bytes(call->sizes, i);
        if (bytes[i] < 0 || bytes[i] > INT64_MAX / 2 - total - 2 * LINE) return run_failure(state, NOYAU_OUT_OF_MEMORY);
        total += (bytes[i] + LINE - 1) / LINE * LINE;
    }
    return run_with_scratch(state, context, call, scratch, bytes, total);
}

static OrtStatus *shape_failure(const node_state *state, int32_t input, const int64_t *dims, size_t rank) {
    char message[512];
    int used = snprintf(message, sizeof message, "noyau::%s: input %d of shape [", state->kernel->name, (int)input);
    for (size_t i = 0; i < rank && used < 400; i++)
        used += snprintf(message + used, sizeof message - (size_t)used, i ? ", %lld" : "%lld", (long long)dims[i]);
    snprintf(message + used, sizeof message - (size_t)used, "] does not fit the operator and its other inputs");
    return state->api->CreateStatus(ORT_INVALID_ARGUMENT, message);
}

/* Writes the shape of `value` to `dims`; an input whose rank is not the kernel's does not fit. */
static OrtStatus *read_shape(const node_state *state, int32_t input, const OrtValue *value, int64_t *dims) {
    const OrtApi *api = state->api;
    const size_t rank = (size_t)state->kernel->ranks[input];
    OrtShapeInfo *info = NULL;
    size_t found = 0;
    OrtStatus *failure = api->GetTensorTypeAndShape(value, &info);
    if (failure) return failure;
    failure = api->GetDimensionsCount(info, &found);
    if (!failure && found != rank) {
        int64_t others[16];
        const size_t shown = found < 16 ? found : 16;
        failure = api->GetDimensions(info, others, shown);
        if (!failure) failure = shape_failure(state, input, others, shown);
    } else if (!failure) {
        failure = api->GetDimensions(info, dims, rank);
    }
    api->ReleaseTensorTypeAndShapeInfo(info);
    return failure;
}

static OrtStatus *take_input(const node_state *state, OrtKernelContext *context, int32_t input, void **buffer,
                             int64_t *dims) {
    const OrtValue *value = NULL;
    OrtStatus *failure = state->api->KernelContext_GetInput(context, (size_t)input, &value);
    if (failure) return failure;
    failure = read_shape(state, input, value, dims);
    if (failure) return failure;
    return state->api->GetTensorMutableData((OrtValue *)value, buffer); /* the only accessor; it is only read */
}

static OrtStatus *make_output(const node_state *state, OrtKernelContext *context, const int64_t *sizes,
                              int32_t output, void **buffer) {
    const noyau_kernel *kernel = state->kernel;
    int64_t dims[state->most_dims + 1];
    OrtValue *value = NULL;
    kernel->shape(sizes, output, dims);
    const size_t rank = (size_t)kernel->ranks[kernel->inputs + output];
    OrtStatus *failure = state->api->KernelContext_GetOutput(context, (size_t)output, dims, rank, &value);
    return failure ? failure : state->api->GetTensorMutableData(value, buffer);
}

static OrtStatus *compute(void *node, OrtKernelContext *context) {
    const node_state *state = node;
    const noyau_kernel *kernel = state->kernel;
    void *buffers[kernel->inputs + kernel->outputs + kernel->scratch + 1];
    const int64_t *shapes[kernel->inputs + 1];
    int64_t dims[state->input_dims + 1], sizes[kernel->sizes + 1], *next = dims;
    for (int32_t i = 0; i < kernel->inputs; i++) {
        OrtStatus *failure = take_input(state, context, i, &buffers[i], next);
        if (failure) return failure;
        shapes[i] = next;
        next += kernel->ranks[i];
    }
    const int32_t misfit = kernel->bind(shapes, sizes);
    if (misfit) return shape_failure(state, misfit - 1, shapes[misfit - 1], (size_t)kernel->ranks[misfit - 1]);
    for (int32_t i = 0; i < kernel->outputs; i++) {
        OrtStatus *failure = make_output(state, context, sizes, i, &buffers[kernel->inputs + i]);
        if (failure) return failure;
    }
#ifdef NOYAU_GRIDS
    if (state->loaded) return run_grid(state->api, state->loaded, context, buffers, sizes);
#endif
    noyau_call call = {buffers, sizes, 0};
    return prepare_scratch(state, context, &call, &buffers[kernel->inputs + kernel->outputs]);
}

/* ---- the callbacks of an operator ---- */

static const OrtApi *shared_api; /* for callbacks without an API argument */

static const operator_entry *entry_of(const OrtCustomOp *op) { return (const operator_entry *)(const void *)op; }
static const noyau_kernel *kernel_of(const OrtCustomOp *op) { return entry_of(op)->kernel; }

static const char *name_of(const OrtCustomOp *op) { return kernel_of(op)->name; }
static const char *provider_of(const OrtCustomOp *op) { return entry_of(op)->loaded ? "CUDAExecutionProvider" : NULL; }

/* Behind the kernel's inputs stand any number of inputs that only the function body reads, such as shapes. */
static size_t input_count(const OrtCustomOp *op) { return (size_t)kernel_of(op)->inputs + 1; }
static size_t output_count(const OrtCustomOp *op) { return (size_t)kernel_of(op)->outputs; }

static int input_type(const OrtCustomOp *op, size_t i) {
    return i < (size_t)kernel_of(op)->inputs ? kernel_of(op)->dtypes[i] : 0;
}
static int output_type(const OrtCustomOp *op, size_t i) { return kernel_of(op)->dtypes[(size_t)kernel_of(op)->inputs + i]; }
static int input_kind(const OrtCustomOp *op, size_t i) {
    return i < (size_t)kernel_of(op)->inputs ? ORT_REQUIRED : ORT_VARIADIC;
}
static int output_kind(const OrtCustomOp *op, size_t i) { return (void)op, (void)i, ORT_REQUIRED; }
/* Inputs that only the body reads stay on the host, where shapes are already. */
static int memory_of_input(const OrtCustomOp *op, size_t i) {
    return i < (size_t)kernel_of(op)->inputs ? ORT_DEFAULT_MEMORY : ORT_CPU_MEMORY;
}
static int least_arity(const OrtCustomOp *op) { return (void)op, 0; }
static int of_one_type(const OrtCustomOp *op) { return (void)op, 0; }
static int first_version(const OrtCustomOp *op) { return (void)op, 1; }
static int last_version(const OrtCustomOp *op) { return (void)op, INT32_MAX; }

static OrtStatus *create_node(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **node) {
    (void)info;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const noyau_kernel *kernel = kernel_of(op);
    node_state *state = calloc(1, sizeof *state);
    if (!state) return api->CreateStatus(ORT_FAIL, "noyau: out of memory");
    state->api = api;
    state->kernel = kernel;
    state->cores = online > MOST_SHARES ? MOST_SHARES : online > 1 ? (int)online : 1;
    for (int32_t i = 0; i < kernel->inputs; i++) state->input_dims += kernel->ranks[i];
    for (int32_t i = kernel->inputs; i < kernel->inputs + kernel->outputs; i++)
        if (kernel->ranks[i] > state->most_dims) state->most_dims = kernel->ranks[i];
    OrtStatus *failure = api->CreateCpuMemoryInfo(ORT_ARENA_ALLOCATOR, ORT_DEFAULT_MEMORY, &state->memory);
#ifdef NOYAU_GRIDS
    void **kernels;
    state->loaded = entry_of(op)->loaded;
    if (!failure && state->loaded) failure = find_kernels(api, state->loaded, &kernels);
    if (failure && state->memory) api->ReleaseMemoryInfo(state->memory);
#endif
    if (failure) free(state);
    else *node = state;
    return failure;
}

static void destroy_node(void *node) {
    node_state *state = node;
    state->api->ReleaseMemoryInfo(state->memory);
    free(state);
}

/* The callbacks before version 16, which cannot report a failure: this library asks for 17, where they are not used. */
static void *create_without_status(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info) {
    void *node = NULL;
    OrtStatus *failure = create_node(op, api, info, &node);
    if (failure) api->ReleaseStatus(failure);
    return node;
}

static void compute_without_status(void *node, OrtKernelContext *context) {
    OrtStatus *failure = compute(node, context);
    if (failure) ((node_state *)node)->api->ReleaseStatus(failure);
}

/* ---- shapes while the model is loaded ---- */

enum knowledge { NOTHING, RANK, EXTENTS };

/* Returns the knowledge about an input's shape; fills `dims` where every dimension is known. */
static enum knowledge known_shape(OrtShapeInferContext *context, size_t input, size_t rank, int64_t *dims) {
    OrtShapeInfo *info = NULL;
    size_t found = 0;
    enum knowledge known = NOTHING;
    OrtStatus *failure = shared_api->ShapeInferContext_GetInputTypeShape(context, input, &info);
    if (!failure && info) failure = shared_api->GetDimensionsCount(info, &found);
    if (!failure && info && found == rank) {
        failure = shared_api->GetDimensions(info, dims, rank);
        known = failure ? NOTHING : EXTENTS;
        for (size_t i = 0; known == EXTENTS && i < rank; i++) known = dims[i] >= 0 ? EXTENTS : RANK;
    }
    if (failure) shared_api->ReleaseStatus(failure);
    return known; /* `info` stays the context's own */
}

/* Trial values of unknown sizes: an extent that is the same for all of them, from the least size on, depends on
   no size. The last is above the numbers that models compare sizes with. */
enum { TRIALS = 5 };
static const int64_t trial_sizes[TRIALS] = {0, 1, 2, 3, INT32_MAX};

static atomic_uint open_extents; /* a name for each open extent: equal names would mean equal extents */

/* Declares the extents of an output that are the same for each of `count` consecutive arrays of sizes. */
static OrtStatus *tell_shape(OrtShapeInferContext *context, const noyau_kernel *kernel, const int64_t *sizes,
                             int32_t count, int32_t output) {
    const size_t rank = (size_t)kernel->ranks[kernel->inputs + output];
    int64_t dims[rank + 1], others[rank + 1];
    const char *names[rank + 1];
    char open[rank + 1][32];
    kernel->shape(sizes, output, dims);
    for (int32_t trial = 1; trial < count; trial++) {
        kernel->shape(sizes + trial * (kernel->sizes + 1), output, others);
        for (size_t i = 0; i < rank; i++) dims[i] = dims[i] == others[i] ? dims[i] : -1;
    }
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0) snprintf(open[i], sizeof open[i], "noyau_%u", atomic_fetch_add(&open_extents, 1));
        names[i] = dims[i] < 0 ? open[i] : "";
    }
    OrtShapeInfo *info = NULL;
    OrtStatus *failure = shared_api->CreateTensorTypeAndShapeInfo(&info);
    if (failure) return failure;
    failure = shared_api->SetTensorElementType(info, kernel->dtypes[kernel->inputs + output]);
    if (!failure) failure = shared_api->SetDimensions(info, dims, rank);
    if (!failure) failure = shared_api->SetSymbolicDimensions(info, names, rank);
    if (!failure) failure = shared_api->ShapeInferContext_SetOutputTypeShape(context, (size_t)output, info);
    shared_api->ReleaseTensorTypeAndShapeInfo(info);
    return failure;
}

/* Declares the outputs' shapes where all inputs' shapes are known, else the extents that do not depend on them; the
   run reports a misfit. */
static OrtStatus *infer_shapes(const OrtCustomOp *op, OrtShapeInferContext *context) {
    const noyau_kernel *kernel = kernel_of(op);
    int32_t total = 0;
    for (int32_t i = 0; i < kernel->inputs; i++) total += kernel->ranks[i];
    int64_t dims[total + 1], sizes[TRIALS * (kernel->sizes + 1)], *next = dims;
    const int64_t *shapes[kernel->inputs + 1];
    enum knowledge known = EXTENTS;
    for (int32_t i = 0; i < kernel->inputs; i++) {
        const enum knowledge own = known_shape(context, (size_t)i, (size_t)kernel->ranks[i], next);
        if (own == NOTHING) return NULL; /* such as a Loop's state, whose rank onnxruntime leaves open as the model did */
        known = own < known ? own : known;
        shapes[i] = next;
        next += kernel->ranks[i];
    }
    if (known == EXTENTS && kernel->bind(shapes, sizes)) return NULL;
    for (int32_t i = 0; known == RANK && i < TRIALS * (kernel->sizes + 1); i++) sizes[i] = trial_sizes[i / (kernel->sizes + 1)];
    for (int32_t i = 0; i < kernel->outputs; i++) {
        OrtStatus *failure = tell_shape(context, kernel, sizes, known == EXTENTS ? 1 : TRIALS, i);
        if (failure) return failure;
    }
    return NULL;
}

/* ---- the library's one export ---- */

/* The API number of "1.31.1" is 31. */
static long api_of(const char *version) {
    char *rest = NULL;
    const long major = strtol(version, &rest, 10);
    if (major != 1) return major > 1 ? ORT_API : 0;
    return *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
}

static operator_entry operators[KERNELS + GRIDS]; /* the CPU's, then the GPU's */
static OrtCustomOpDomain *shared_domain; /* outlives every session, as onnxruntime requires */
static atomic_flag busy = ATOMIC_FLAG_INIT;

static const OrtCustomOp template_op = {
    ORT_API, create_without_status, name_of, provider_of, input_type, input_count, output_type, output_count,
    compute_without_status, destroy_node, input_kind, output_kind, memory_of_input, least_arity, of_one_type,
    least_arity, of_one_type, create_node, compute, infer_shapes, first_version, last_version, {0},
};

/* Makes an operator serve CUDA's provider. */
static OrtStatus *put_grid(const OrtApi *api, int place) {
#ifdef NOYAU_GRIDS
    const noyau_grid *grid = noyau_grids[place];
    void ***kernels = calloc((size_t)grid->code_count, sizeof *kernels);
    if (!kernels) return api->CreateStatus(ORT_FAIL, "noyau: out of memory");
    loaded_grids[place] = (loaded_grid){grid, kernels};
    operators[KERNELS + place].kernel = &grid->table;
    operators[KERNELS + place].loaded = &loaded_grids[place];
#else
    (void)api, (void)place;
#endif
    return NULL;
}

static OrtStatus *make_domain(const OrtApi *api) {
    OrtCustomOpDomain *domain = NULL;
    OrtStatus *failure = api->CreateCustomOpDomain(NOYAU_DOMAIN, &domain);
    for (int i = 0; !failure && i < KERNELS + GRIDS; i++) {
        operators[i] = (operator_entry){template_op, noyau_kernels[i % KERNELS], NULL};
        if (i >= KERNELS) failure = put_grid(api, i - KERNELS);
        if (!failure) failure = api->CustomOpDomain_Add(domain, &operators[i].op);
    }
    if (!failure) shared_api = api, shared_domain = domain;
    else if (domain) api->ReleaseCustomOpDomain(domain);
    return failure;
}

/* Registers nothing on a lesser CPU or with an older onnxruntime: the model's function bodies run then. */
__attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(OrtSessionOptions *options,
                                                                    const OrtApiBase *base);
OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    if (!cpu_has_all() || api_of(base->GetVersionString()) < ORT_API) return NULL;
    const OrtApi *api = base->GetApi(ORT_API);
    if (!api) return NULL;
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {}
    OrtStatus *failure = shared_domain ? NULL : make_domain(api);
    atomic_flag_clear_explicit(&busy, memory_order_release);
    return failure ? failure : api->AddCustomOpDomain(options, shared_domain);
}
