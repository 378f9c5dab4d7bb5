/* A call of a kernel from Python, from the arguments to the results, without a line of Python in between. Before this
   text stands arguments.c. */

/* ---- results ---- */

static py *shape_tuple(int32_t rank, const int64_t *dims) {
    py *shape = python.tuple_new(rank);
    for (int32_t axis = 0; shape && axis < rank; axis++) {
        py *extent = python.long_new(dims[axis]);
        if (!extent) return python.drop(shape), NULL;
        python.tuple_put(shape, axis, extent);
    }
    return shape;
}

/* Allocates by `empty` of fast_calls.py, whose memory may have been used before. */
static py *make_apart(py *self, const result_end *end, int32_t rank, const int64_t *dims) {
    py *given = python.tuple_new(2), *shape = given ? shape_tuple(rank, dims) : NULL;
    if (!shape) return given ? python.drop(given), NULL : NULL;
    python.tuple_put(given, 0, shape);
    python.keep(end->descr);
    python.tuple_put(given, 1, end->descr);
    py *made = python.call(python.tuple_item(self, EMPTY), given, NULL);
    python.drop(given);
    return made;
}

static py *make_array(py *self, const fast_call *call, const result_end *end, int32_t rank, const int64_t *dims,
                      void **data) {
    double bytes = end->item;
    for (int32_t axis = 0; axis < rank; axis++) bytes *= (double)dims[axis];
    py *made;
    if (bytes >= (double)call->made_apart || !python.array_new) {
        made = make_apart(self, end, rank, dims);
    } else {
        intptr_t extents[rank + 1];
        for (int32_t axis = 0; axis < rank; axis++) extents[axis] = dims[axis];
        python.keep(end->descr); /* array_new takes the reference over */
        made = python.array_new(python.ndarray, end->descr, rank, extents, NULL, NULL, 0, NULL);
    }
    if (made) *data = ((array_fields *)inside(made))->data;
    return made;
}

/* Whether a result can be written into an array directly: of this dtype and shape, packed, writable. */
static int is_writable(const result_end *end, py *object, int32_t rank, const int64_t *dims) {
    enum { WANTED = C_CONTIGUOUS | ALIGNED | WRITEABLE };
    if (type_of(object) != python.ndarray) return 0;
    const array_fields *array = inside(object);
    if (array->nd != rank || (array->flags & WANTED) != WANTED || !same(end->descr, array->descr)) return 0;
    for (int32_t axis = 0; axis < rank; axis++)
        if (array->dimensions[axis] != dims[axis]) return 0;
    return 1;
}

/* The first byte of an array and the byte behind its last, for any strides. */
static void span(py *object, int32_t item, const char **low, const char **high) {
    const array_fields *array = inside(object);
    *low = array->data, *high = array->data + item;
    for (int axis = 0; axis < array->nd; axis++) {
        const intptr_t reach = (array->dimensions[axis] - 1) * array->strides[axis];
        if (array->dimensions[axis] == 0) return (void)(*high = *low = NULL);
        if (reach < 0) *low += reach;
        else *high += reach;
    }
}

static int apart(py *left, int32_t left_item, py *right, int32_t right_item) {
    const char *low, *high, *other_low, *other_high;
    span(left, left_item, &low, &high);
    span(right, right_item, &other_low, &other_high);
    return high <= other_low || other_high <= low || low == high || other_low == other_high;
}

/* Whether result `at` of `out` shares no memory with an argument, nor with a result before it. */
static int is_apart(const fast_call *call, py *given, py *const *out, int32_t at) {
    for (int32_t k = 0; k < (int32_t)python.tuple_size(given); k++) {
        py *other = python.tuple_item(given, k);
        if (type_of(other) != python.ndarray) continue;
        if (!apart(out[at], call->results[at].item, other, call->arguments[k].item)) return 0;
    }
    for (int32_t k = 0; k < at; k++)
        if (!apart(out[at], call->results[at].item, out[k], call->results[k].item)) return 0;
    return 1;
}

/* ---- a call ---- */

static py *returned(py *object) { return python.keep(object), object; }

static py *failure(py *self, int32_t status) {
    py *failures = python.tuple_item(self, FAILURES);
    const int32_t known = (int32_t)python.tuple_size(failures) - 1;
    py *pair = python.tuple_item(failures, status > 0 && status < known ? status : known);
    python.error_raise(python.tuple_item(pair, 0), python.tuple_item(pair, 1));
    return NULL;
}

/* Allocates a result of a shape for a fast call, and gives the address of its cells. */
typedef py *maker(py *self, const fast_call *call, const result_end *end, int32_t rank, const int64_t *dims,
                  void **data);

/* An array for scratch of more than is kept from call to call, in memory that was used before; NULL where there is none,
   or where no more than that is needed. */
static py *large_scratch(py *self, const fast_call *call, maker *make, const int64_t *sizes, void **data) {
    const noyau_kernel *kernel = call->kernel;
    int64_t bytes[kernel->scratch + 1];
    const int64_t total = kernel->scratch ? scratch_of(kernel, sizes, bytes) : 0;
    if (total <= SPARE_BYTES || !kernel->outputs) return NULL;
    const int64_t cells = (total + LINE) / call->results[0].item + 1;
    py *made = make(self, call, &call->results[0], 1, &cells, data);
    if (!made) return python.error_clear(), NULL;
    *data = (void *)(((uintptr_t)*data + LINE - 1) / LINE * LINE);
    return made;
}

static int32_t run_kernel(const noyau_kernel *kernel, void **buffers, const int64_t *sizes, void *memory) {
    noyau_call call = {buffers, sizes, 0};
    double bytes = 0;
    for (int32_t launch = 0; launch < kernel->launches; launch++)
        bytes += (double)kernel->extent(sizes, launch) * (double)kernel->item_bytes(sizes, launch);
    void *state = bytes >= SHARED_BYTES ? python.threads_allow() : NULL; /* less work keeps the interpreter's lock */
    const int32_t status = noyau_run(kernel, &call, buffers + kernel->inputs + kernel->outputs, memory);
    if (state) python.threads_return(state);
    return status;
}

static py *marker; /* while a profiler records: opens a span of time, which ends when the object is dropped */

static int32_t run_marked(py *self, const fast_call *call, maker *make, void **buffers, const int64_t *sizes) {
    void *memory = NULL;
    py *scratch = large_scratch(self, call, make, sizes, &memory);
    py *span = marker ? python.call(marker, python.tuple_item(self, NAME), NULL) : NULL;
    if (marker && !span) python.error_clear();
    const int32_t status = run_kernel(call->kernel, buffers, sizes, memory);
    if (span) python.drop(span);
    if (scratch) python.drop(scratch);
    return status;
}

/* The results in the form of a call, one or a tuple; takes their references over. */
static py *packed(const fast_call *call, py **results) {
    const int32_t count = call->kernel->outputs;
    int right = 1;
    for (int32_t k = 0; k < count; k++) {
        if (!call->results[k].scalar) continue;
        py *scalar = python.item(results[k], python.nothing);
        python.drop(results[k]);
        results[k] = scalar;
        right = right && scalar;
    }
    py *made = !right ? NULL : count == 1 ? results[0] : python.tuple_new(count);
    for (int32_t k = 0; k < count && count > 1; k++) {
        if (made) python.tuple_put(made, k, results[k]);
        else if (results[k]) python.drop(results[k]);
    }
    return made;
}

/* Allocates the results, runs the kernel, and returns them. */
static py *into_new(py *self, const fast_call *call, maker *make, void **buffers, const int64_t *sizes) {
    const noyau_kernel *kernel = call->kernel;
    py *results[kernel->outputs + 1];
    int64_t dims[call->most_dims + 1];
    int32_t made = 0;
    for (; made < kernel->outputs; made++) {
        const int32_t at = kernel->inputs + made;
        kernel->shape(sizes, made, dims);
        results[made] = make(self, call, &call->results[made], kernel->ranks[at], dims, &buffers[at]);
        if (!results[made]) break;
    }
    const int32_t status = made == kernel->outputs ? run_marked(self, call, make, buffers, sizes) : NOYAU_OK;
    if (made == kernel->outputs && status == NOYAU_OK) return packed(call, results);
    for (int32_t k = 0; k < made; k++) python.drop(results[k]);
    return status == NOYAU_OK ? NULL : failure(self, status);
}

/* Runs into `out`: directly where every array of it is writable so, else Python copies results into it. */
static py *into_given(py *self, const fast_call *call, py *given, py *out, void **buffers, const int64_t *sizes) {
    const noyau_kernel *kernel = call->kernel;
    py *results[kernel->outputs + 1];
    int64_t dims[call->most_dims + 1];
    const int several = type_of(out) == python.tuple;
    int right = several ? python.tuple_size(out) == kernel->outputs : kernel->outputs == 1;
    for (int32_t k = 0; right && k < kernel->outputs; k++) {
        results[k] = several ? python.tuple_item(out, k) : out;
        kernel->shape(sizes, k, dims);
        right = is_writable(&call->results[k], results[k], kernel->ranks[kernel->inputs + k], dims) &&
                is_apart(call, given, results, k);
        if (right) buffers[kernel->inputs + k] = ((array_fields *)inside(results[k]))->data;
    }
    if (right) {
        const int32_t status = run_marked(self, call, make_array, buffers, sizes);
        return status == NOYAU_OK ? returned(out) : failure(self, status);
    }
    py *made = into_new(self, call, make_array, buffers, sizes), *three = made ? python.tuple_new(3) : NULL;
    if (!three) return made ? python.drop(made), NULL : NULL;
    python.tuple_put(three, 0, made);
    python.tuple_put(three, 1, returned(out));
    python.tuple_put(three, 2, returned(given));
    py *written = python.call(python.tuple_item(self, INTO), three, NULL);
    python.drop(three);
    return written;
}

/* Whether no extent of a result is negative for these sizes. */
static int has_shapes(const fast_call *call, const int64_t *sizes) {
    const noyau_kernel *kernel = call->kernel;
    int64_t dims[call->most_dims + 1];
    for (int32_t k = 0; k < kernel->outputs; k++) {
        kernel->shape(sizes, k, dims);
        for (int32_t axis = 0; axis < kernel->ranks[kernel->inputs + k]; axis++)
            if (dims[axis] < 0) return 0;
    }
    return 1;
}

/* The results of a call, or MISS where the arguments do not fit the fast call's key. */
static py *called(py *self, py *given, py *out, reader *read, maker *make) {
    const fast_call *call = python.long_address(python.tuple_item(self, FAST_CALL));
    const noyau_kernel *kernel = call->kernel;
    py *miss = python.tuple_item(self, MISS);
    const int32_t inputs = kernel->inputs, own = inputs - (int32_t)python.tuple_size(call->constants);
    if (type_of(given) != python.tuple || python.tuple_size(given) != own) return returned(miss);
    void *buffers[inputs + kernel->outputs + kernel->scratch + 1];
    int64_t dims[call->dims + 1], sizes[kernel->sizes + 1], *next = dims;
    const int64_t *shapes[inputs + 1];
    _Alignas(SLOT) unsigned char slots[inputs + 1][SLOT];
    for (int32_t k = 0; k < inputs; k++) {
        const argument_end *end = &call->arguments[k];
        py *object = k < own ? python.tuple_item(given, k) : python.tuple_item(call->constants, k - own);
        if (!read_argument(read, end, object, &buffers[k], slots[k], next)) return returned(miss);
        shapes[k] = next;
        next += 2 * end->rank;
    }
    if (kernel->bind(shapes, sizes) || !has_shapes(call, sizes)) return returned(miss);
    return out ? into_given(self, call, given, out, buffers, sizes) : into_new(self, call, make, buffers, sizes);
}

/* fast_call(arguments, out=None): the results, or MISS. */
static py *noyau_fast_call_run(py *self, py *const *given, ptrdiff_t count) {
    if (count < 1 || count > 2) return returned(python.tuple_item(self, MISS));
    return called(self, given[0], count == 2 && given[1] != python.none ? given[1] : NULL, read_array, make_array);
}

/* ---- what the library offers ---- */

typedef struct { /* Python's PyMethodDef */
    const char *name;
    py *(*function)(py *, py *const *, ptrdiff_t);
    int flags;
    const char *doc;
} method;

NOYAU_EXPORT method noyau_fast_call_method;
method noyau_fast_call_method = {"fast_call", noyau_fast_call_run, 0x80 /* METH_FASTCALL */,
                            "fast_call(arguments, out=None): the results, or MISS"};

/* Takes Python's functions and objects, in the order of `python`; `bytes`: the caller's size of that struct. */
NOYAU_EXPORT int32_t noyau_fast_call_open(const void *table, int64_t bytes);
int32_t noyau_fast_call_open(const void *table, int64_t bytes) {
    if (bytes != (int64_t)sizeof python) return 0;
    memcpy(&python, table, sizeof python);
    return 1;
}
