/* Stands in for onnxruntime with its CUDA provider: the tables of its C interface, each function at its place in the
   published header. It loads a library, takes an operator of a provider, and runs it once on tensors in device memory.

       onnxruntime LIBRARY OPERATOR PROVIDER OUT [RANK DIM... FILE]...

   PROVIDER is CUDAExecutionProvider or cpu. Output i goes to OUT.i, its dims to stdout; the first failure to stderr. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t dims[8];
    size_t rank, bytes;
    uint64_t memory;
} tensor;

static tensor inputs[16], outputs[16];
static size_t input_count, output_count;
static int output_bytes_of_cell = 4, on_gpu;
static void *stream;
static void *operators[64];
static size_t operator_count;
static char failure[1024];

/* ---- the driver, real or a stand-in as well ---- */

static void *cuda;

static void must(int status, const char *what) {
    if (status) fprintf(stderr, "stand-in: %s ends with %d\n", what, status), exit(3);
}

#define CALL(name, types, ...) must(((int(*) types)dlsym(cuda, name))(__VA_ARGS__), name)

static uint64_t take(size_t bytes) {
    uint64_t memory = (uint64_t)(uintptr_t)calloc(1, bytes + 1);
    if (on_gpu) CALL("cuMemAlloc_v2", (uint64_t *, size_t), &memory, bytes + 1);
    return memory;
}

static void open_device(void) {
    int device = 0;
    void *context = NULL;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return; /* the library has to say so */
    CALL("cuInit", (unsigned), 0);
    CALL("cuDeviceGet", (int *, int), &device, 0);
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
    CALL("cuCtxSetCurrent", (void *), context);
    CALL("cuStreamCreate", (void **, unsigned), &stream, 1);
}

/* ---- the functions of OrtApi ---- */

static void *create_status(int code, const char *message) {
    snprintf(failure, sizeof failure, "%d: %s", code, message);
    return failure;
}
static void *create_domain(const char *name, void **domain) { return *domain = (void *)name, NULL; }
static void *add_operator(void *domain, void *op) { return (void)domain, operators[operator_count++] = op, NULL; }
static void *add_domain(void *options, void *domain) { return (void)options, (void)domain, NULL; }
static void *mutable_data(void *value, void **data) {
    return *data = (void *)(uintptr_t)((tensor *)value)->memory, NULL;
}
static void *shape_of(void *value, void **info) { return *info = value, NULL; }
static void *rank_of(void *info, size_t *rank) { return *rank = ((tensor *)info)->rank, NULL; }
static void *dims_of(void *info, int64_t *dims, size_t rank) {
    return memcpy(dims, ((tensor *)info)->dims, rank * sizeof *dims), NULL;
}
static void *memory_info(int allocator, int memory, void **info) { return (void)allocator, (void)memory, *info = info, NULL; }
static void release(void *any) { (void)any; }
static void *get_input(void *context, size_t index, void **value) { return (void)context, *value = &inputs[index], NULL; }
static void *get_output(void *context, size_t index, const int64_t *dims, size_t rank, void **value) {
    tensor *out = &outputs[index];
    (void)context;
    out->rank = rank, out->bytes = (size_t)output_bytes_of_cell;
    for (size_t i = 0; i < rank; i++) out->dims[i] = dims[i], out->bytes *= (size_t)dims[i];
    out->memory = take(out->bytes);
    return *value = out, NULL;
}
static void *gpu_stream(void *context, void **found) { return (void)context, *found = stream, NULL; }
static void *parallel_for(void *context, void (*piece)(void *, size_t), size_t pieces, size_t batches, void *user) {
    (void)context, (void)batches;
    for (size_t i = 0; i < pieces; i++) piece(user, i);
    return NULL;
}

static void missing(void) {
    fprintf(stderr, "stand-in: a function that it has not is called\n");
    exit(3);
}

static void *api[300];

static const void *get_api(uint32_t version) { return version == 17 ? api : NULL; }
static const char *version_string(void) { return "1.31.1"; }
static struct {
    const void *(*get)(uint32_t);
    const char *(*version)(void);
} base = {get_api, version_string};

static void fill_api(void) {
    for (size_t i = 0; i < sizeof api / sizeof *api; i++) api[i] = (void *)missing;
    api[0] = (void *)create_status, api[26] = (void *)create_domain, api[27] = (void *)add_operator;
    api[28] = (void *)add_domain, api[51] = (void *)mutable_data, api[61] = (void *)rank_of, api[62] = (void *)dims_of;
    api[65] = (void *)shape_of, api[69] = (void *)memory_info, api[90] = (void *)get_input, api[91] = (void *)get_output;
    api[93] = api[94] = api[99] = api[101] = (void *)release;
    api[193] = (void *)gpu_stream, api[274] = (void *)parallel_for;
}

/* ---- one run ---- */

static int fail(void *status) {
    if (status) fprintf(stderr, "%s\n", (char *)status);
    return status != NULL;
}

static void *slot(void *op, int place) { return ((void **)op)[place]; }

static void *find(const char *name, const char *provider) {
    for (size_t i = 0; i < operator_count; i++) {
        const char *own = ((const char *(*)(void *))slot(operators[i], 3))(operators[i]);
        if (strcmp(name, ((const char *(*)(void *))slot(operators[i], 2))(operators[i])) == 0
            && strcmp(provider, own ? own : "cpu") == 0)
            return operators[i];
    }
    fprintf(stderr, "stand-in: no %s of %s among %zu operators\n", name, provider, operator_count);
    exit(3);
}

static char **read_input(char **words) {
    tensor *in = &inputs[input_count++];
    in->rank = (size_t)atol(*words++);
    for (size_t i = 0; i < in->rank; i++) in->dims[i] = atoll(*words++);
    FILE *file = fopen(*words++, "rb");
    if (!file) exit(3);
    fseek(file, 0, SEEK_END);
    in->bytes = (size_t)ftell(file);
    rewind(file);
    void *content = malloc(in->bytes + 1);
    if (fread(content, 1, in->bytes, file) != in->bytes) exit(3);
    fclose(file);
    in->memory = take(in->bytes);
    if (on_gpu) CALL("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t), in->memory, content, in->bytes);
    else memcpy((void *)(uintptr_t)in->memory, content, in->bytes);
    return words;
}

static void write_output(size_t index, const char *prefix) {
    const tensor *out = &outputs[index];
    char name[512];
    void *content = malloc(out->bytes + 1);
    if (on_gpu) CALL("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), content, out->memory, out->bytes);
    else memcpy(content, (void *)(uintptr_t)out->memory, out->bytes);
    snprintf(name, sizeof name, "%s.%zu", prefix, index);
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(content, 1, out->bytes, file) != out->bytes || fclose(file)) exit(3);
    for (size_t i = 0; i < out->rank; i++) printf("%lld ", (long long)out->dims[i]);
    printf("\n");
}

int main(int count, char **words) {
    if (count < 5) return 3;
    void *library = dlopen(words[1], RTLD_NOW), *node = NULL;
    if (!library) return fprintf(stderr, "stand-in: %s\n", dlerror()), 3;
    fill_api();
    on_gpu = strcmp(words[3], "cpu") != 0;
    if (on_gpu) open_device();
    on_gpu = on_gpu && cuda;
    void *status = ((void *(*)(void *, const void *))dlsym(library, "RegisterCustomOps"))(NULL, &base);
    if (fail(status)) return 1;
    void *op = find(words[2], words[3]);
    for (char **rest = words + 5; rest < words + count;) rest = read_input(rest);
    output_count = ((size_t(*)(void *))slot(op, 7))(op);
    for (size_t i = 0; i <= input_count; i++) /* the last one is that of a body's own inputs */
        printf("%d ", ((int (*)(void *, size_t))slot(op, 12))(op, i));
    printf("\n");
    if (fail(((void *(*)(void *, void *, void *, void **))slot(op, 17))(op, api, NULL, &node))) return 1;
    for (int run = 0; run < 2; run++) /* the second finds its code loaded */
        if (fail(((void *(*)(void *, void *))slot(op, 18))(node, NULL))) return 1;
    if (on_gpu) CALL("cuStreamSynchronize", (void *), stream);
    for (size_t i = 0; i < output_count; i++) write_output(i, words[4]);
    ((void (*)(void *))slot(op, 9))(node);
    return 0;
}
