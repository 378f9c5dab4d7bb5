/* A call of a kernel from Python, from the arguments to the results, without a line of Python in between. Before this
   text stand noyau.h and threads.c.

   Python's functions come as a table of addresses, all of them of the stable ABI, so that this needs no header of
   Python's and one library serves every version. Arrays are read as NumPy's documented struct; where it lies behind the
   head of an object is told, and was tried, when the library was loaded. */
#include <stddef.h>
#include <string.h>

typedef struct py py; /* a Python object, by its address alone */

static struct {
    ptrdiff_t (*tuple_size)(py *);
    py *(*tuple_item)(py *, ptrdiff_t);
    py *(*tuple_new)(ptrdiff_t);
    int (*tuple_put)(py *, ptrdiff_t, py *);
    void *(*long_address)(py *);
    py *(*long_new)(long long);
    long long (*long_signed)(py *);
    unsigned long long (*long_unsigned)(py *);
    double (*float_value)(py *);
    py *(*error)(void);
    void (*error_clear)(void);
    void (*error_raise)(py *, py *);
    py *(*call)(py *, py *, py *);
    py *(*item)(py *, py *);
    int (*compare)(py *, py *, int);
    void (*keep)(py *);
    void (*drop)(py *);
    void *(*threads_allow)(void);
    void (*threads_return)(void *);
    py *(*array_new)(py *, py *, int, const intptr_t *, const intptr_t *, void *, int, py *); /* NumPy's own */
    py *ndarray, *tuple, *boolean, *integer, *real, *yes, *none, *nothing; /* the types, True, None, () */
    int64_t head; /* bytes of the head of every object */
} python;

typedef struct { /* NumPy's PyArrayObject_fields, behind the head */
    char *data;
    int nd;
    intptr_t *dimensions, *strides;
    py *parent, *descr;
    int flags;
} array_fields;

enum { C_CONTIGUOUS = 0x1, ALIGNED = 0x100, WRITEABLE = 0x400, EQUAL = 2 };
enum { PACKED, PERMUTED, INNER, STRIDED };
enum { ARRAYS = 1, BOOLEANS = 2, INTEGERS = 4, REALS = 8 };
enum { SHARED_BYTES = 32768, SLOT = 16, NAMES = 5 };

/* What one argument is. `scalar`: the type of its NumPy scalars, or NULL; `convert`: makes an array of rank 0 of a Python
   number where C does not; `equals`: the only value it may have, or NULL; `ones`: a bit for each axis of one cell, or -1
   where that does not matter; `axes`: of a permuted array, from the outermost in memory. */
typedef struct {
    py *descr, *scalar, *convert;
    const void *equals;
    const int32_t *axes;
    int64_t ones;
    int32_t onnx, item, rank, layout, takes;
} argument_end;

typedef struct {
    py *descr;
    int32_t item, scalar;
} result_end;

/* `made_apart`: bytes from which a result is made by Python. */
typedef struct {
    const noyau_kernel *kernel;
    const argument_end *arguments;
    const result_end *results;
    int64_t dims, most_dims, made_apart;
} door;

enum { DOOR, MISS, EMPTY, INTO, FAILURES }; /* what `self` of a door holds, in order */

static py *type_of(py *object) { return *(py **)((char *)object + python.head - sizeof(py *)); }
static void *inside(py *object) { return (char *)object + python.head; }

/* ---- arguments ---- */

static int is_packed(const array_fields *array, const int32_t *axes, int32_t item) {
    intptr_t step = item;
    for (int at = array->nd - 1; at >= 0; at--) {
        const int axis = axes[at];
        if (array->dimensions[axis] == 0) return 1;
        if (array->dimensions[axis] != 1 && array->strides[axis] != step) return 0;
        step *= array->dimensions[axis];
    }
    return 1;
}

static intptr_t size_of(intptr_t stride) { return stride < 0 ? -stride : stride; }

/* The layout of an array that is not packed, as `layout_of` in Python has it; -1 where it must be copied. */
static int layout_of(const array_fields *array, int32_t item) {
    int32_t axes[array->nd + 1];
    for (int at = 0; at < array->nd; at++) {
        if (array->strides[at] % item) return -1;
        int to = at;
        for (; to > 0 && size_of(array->strides[axes[to - 1]]) < size_of(array->strides[at]); to--)
            axes[to] = axes[to - 1];
        axes[to] = at;
    }
    if (is_packed(array, axes, item)) return PERMUTED;
    return array->strides[array->nd - 1] == item ? INNER : STRIDED;
}

static int same(py *mine, py *other) {
    if (mine == other) return 1;
    const int found = python.compare(mine, other, EQUAL);
    if (found < 0) python.error_clear();
    return found == 1;
}

/* Whether cells lie as their end says: extents, then strides in cells, go to `dims`. */
static int read_cells(const argument_end *end, const array_fields *array, int packed, void **data, int64_t *dims) {
    if (packed != (end->layout == PACKED)) return 0;
    if (end->layout == PERMUTED && !is_packed(array, end->axes, end->item)) return 0;
    if (end->layout >= INNER && layout_of(array, end->item) != end->layout) return 0;
    int64_t ones = 0;
    for (int at = 0; at < end->rank; at++) {
        const int axis = end->layout == PERMUTED ? end->axes[at] : at;
        dims[at] = array->dimensions[axis];
        dims[end->rank + at] = array->dimensions[axis] > 1 ? array->strides[axis] / end->item : 0;
        ones |= (int64_t)(array->dimensions[axis] == 1) << axis;
    }
    *data = array->data;
    return end->ones < 0 || end->ones == ones;
}

static int read_array(const argument_end *end, py *object, void **data, int64_t *dims) {
    const array_fields *array = inside(object);
    if (array->nd != end->rank || !(array->flags & ALIGNED) || !same(end->descr, array->descr)) return 0;
    return read_cells(end, array, array->flags & C_CONTIGUOUS, data, dims);
}

enum { F32 = 1, U8 = 2, I8 = 3, U16 = 4, I16 = 5, I32 = 6, I64 = 7, BOOL = 9, F64 = 11, U32 = 12, U64 = 13 };

#define STORE(type, value) (*(type *)slot = (type)(value), 1)
#define STORE_WITHIN(type, value, low, high) ((value) >= (low) && (value) <= (high) ? STORE(type, value) : 0)

static int store_integer(int32_t onnx, py *object, void *slot) {
    const long long value = python.long_signed(object);
    if (value == -1 && python.error()) {
        python.error_clear();
        if (onnx != U64) return 0;
        const unsigned long long large = python.long_unsigned(object);
        if (large == (unsigned long long)-1 && python.error()) return python.error_clear(), 0;
        return STORE(uint64_t, large);
    }
    switch (onnx) {
    case F32: return STORE(float, value);
    case F64: return STORE(double, value);
    case I8: return STORE_WITHIN(int8_t, value, INT8_MIN, INT8_MAX);
    case I16: return STORE_WITHIN(int16_t, value, INT16_MIN, INT16_MAX);
    case I32: return STORE_WITHIN(int32_t, value, INT32_MIN, INT32_MAX);
    case I64: return STORE(int64_t, value);
    case U8: return STORE_WITHIN(uint8_t, value, 0, UINT8_MAX);
    case U16: return STORE_WITHIN(uint16_t, value, 0, UINT16_MAX);
    case U32: return STORE_WITHIN(uint32_t, value, 0, (long long)UINT32_MAX);
    case U64: return STORE_WITHIN(uint64_t, value, 0, INT64_MAX);
    default: return 0;
    }
}

static int store_real(int32_t onnx, py *object, void *slot) {
    const double value = python.float_value(object);
    switch (onnx) {
    case F32: return STORE(float, value);
    case F64: return STORE(double, value);
    default: return 0;
    }
}

/* A number of a dtype that C lacks, by Python. */
static int convert(const argument_end *end, py *object, void *slot) {
    py *given = python.tuple_new(1);
    if (!given) return python.error_clear(), 0;
    python.keep(object);
    python.tuple_put(given, 0, object);
    py *made = python.call(end->convert, given, NULL);
    python.drop(given);
    if (!made) return python.error_clear(), 0;
    const int right = type_of(made) == python.ndarray;
    if (right) memcpy(slot, ((const array_fields *)inside(made))->data, (size_t)end->item);
    python.drop(made);
    return right;
}

/* A number, of Python or of NumPy, goes to `slot` in the dtype of its end. */
static int read_number(const argument_end *end, py *object, void *slot) {
    py *type = type_of(object);
    if (type == end->scalar && end->takes & ARRAYS) return memcpy(slot, inside(object), (size_t)end->item), 1;
    const int kind = type == python.real ? REALS : type == python.integer ? INTEGERS
                     : type == python.boolean                            ? BOOLEANS
                                                                         : 0;
    if (!(kind & end->takes)) return 0;
    if (kind == BOOLEANS) return end->onnx == BOOL ? STORE(uint8_t, object == python.yes) : 0;
    if (end->convert) return convert(end, object, slot);
    return kind == REALS ? store_real(end->onnx, object, slot) : store_integer(end->onnx, object, slot);
}

static int read_argument(const argument_end *end, py *object, void **data, void *slot, int64_t *dims) {
    if (type_of(object) == python.ndarray) {
        if (!(end->takes & ARRAYS) || !read_array(end, object, data, dims)) return 0;
    } else {
        if (end->rank || !read_number(end, object, slot)) return 0;
        *data = slot;
    }
    return !end->equals || !memcmp(*data, end->equals, (size_t)end->item);
}

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

/* By `memory.empty`, which has memory that was used before. */
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

static py *make_result(py *self, const door *door, const result_end *end, int32_t rank, const int64_t *dims) {
    double bytes = end->item;
    for (int32_t axis = 0; axis < rank; axis++) bytes *= (double)dims[axis];
    if (bytes >= (double)door->made_apart || !python.array_new) return make_apart(self, end, rank, dims);
    intptr_t extents[rank + 1];
    for (int32_t axis = 0; axis < rank; axis++) extents[axis] = dims[axis];
    python.keep(end->descr); /* it is taken over */
    return python.array_new(python.ndarray, end->descr, rank, extents, NULL, NULL, 0, NULL);
}

/* Whether an array can be written as it is: of this dtype and shape, packed, writable. */
static int is_writable(const result_end *end, py *object, int32_t rank, const int64_t *dims) {
    enum { WANTED = C_CONTIGUOUS | ALIGNED | WRITEABLE };
    if (type_of(object) != python.ndarray) return 0;
    const array_fields *array = inside(object);
    if (array->nd != rank || (array->flags & WANTED) != WANTED || !same(end->descr, array->descr)) return 0;
    for (int32_t axis = 0; axis < rank; axis++)
        if (array->dimensions[axis] != dims[axis]) return 0;
    return 1;
}

/* The first byte of an array and the one behind its last, whatever its strides. */
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
static int is_apart(const door *door, py *given, py *const *out, int32_t at) {
    for (int32_t k = 0; k < door->kernel->inputs; k++) {
        py *other = python.tuple_item(given, k);
        if (type_of(other) != python.ndarray) continue;
        if (!apart(out[at], door->results[at].item, other, door->arguments[k].item)) return 0;
    }
    for (int32_t k = 0; k < at; k++)
        if (!apart(out[at], door->results[at].item, out[k], door->results[k].item)) return 0;
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

static int32_t run_kernel(const noyau_kernel *kernel, void **buffers, const int64_t *sizes) {
    noyau_call call = {buffers, sizes, 0};
    double bytes = 0;
    for (int32_t launch = 0; launch < kernel->launches; launch++)
        bytes += (double)kernel->extent(sizes, launch) * (double)kernel->item_bytes(sizes, launch);
    void *state = bytes >= SHARED_BYTES ? python.threads_allow() : NULL; /* what is quicker than to give way does not */
    const int32_t status = noyau_run(kernel, &call, buffers + kernel->inputs + kernel->outputs);
    if (state) python.threads_return(state);
    return status;
}

/* The results as the caller gets them: one, or a tuple; takes them over. */
static py *packed(const door *door, py **results) {
    const int32_t count = door->kernel->outputs;
    int right = 1;
    for (int32_t k = 0; k < count; k++) {
        if (!door->results[k].scalar) continue;
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

/* Makes the results, runs, and gives them. */
static py *into_new(py *self, const door *door, void **buffers, const int64_t *sizes) {
    const noyau_kernel *kernel = door->kernel;
    py *results[kernel->outputs + 1];
    int64_t dims[door->most_dims + 1];
    int32_t made = 0;
    for (; made < kernel->outputs; made++) {
        const int32_t rank = kernel->ranks[kernel->inputs + made];
        kernel->shape(sizes, made, dims);
        results[made] = make_result(self, door, &door->results[made], rank, dims);
        if (!results[made]) break;
        buffers[kernel->inputs + made] = ((array_fields *)inside(results[made]))->data;
    }
    const int32_t status = made == kernel->outputs ? run_kernel(kernel, buffers, sizes) : NOYAU_OK;
    if (made == kernel->outputs && status == NOYAU_OK) return packed(door, results);
    for (int32_t k = 0; k < made; k++) python.drop(results[k]);
    return status == NOYAU_OK ? NULL : failure(self, status);
}

/* Runs into `out`: at once where every array of it can be written as it is, else Python copies results into it. */
static py *into_given(py *self, const door *door, py *given, py *out, void **buffers, const int64_t *sizes) {
    const noyau_kernel *kernel = door->kernel;
    py *results[kernel->outputs + 1];
    int64_t dims[door->most_dims + 1];
    const int several = type_of(out) == python.tuple;
    int right = several ? python.tuple_size(out) == kernel->outputs : kernel->outputs == 1;
    for (int32_t k = 0; right && k < kernel->outputs; k++) {
        results[k] = several ? python.tuple_item(out, k) : out;
        kernel->shape(sizes, k, dims);
        right = is_writable(&door->results[k], results[k], kernel->ranks[kernel->inputs + k], dims) &&
                is_apart(door, given, results, k);
        if (right) buffers[kernel->inputs + k] = ((array_fields *)inside(results[k]))->data;
    }
    if (right) {
        const int32_t status = run_kernel(kernel, buffers, sizes);
        return status == NOYAU_OK ? returned(out) : failure(self, status);
    }
    py *made = into_new(self, door, buffers, sizes), *three = made ? python.tuple_new(3) : NULL;
    if (!three) return made ? python.drop(made), NULL : NULL;
    python.tuple_put(three, 0, made);
    python.tuple_put(three, 1, returned(out));
    python.tuple_put(three, 2, returned(given));
    py *written = python.call(python.tuple_item(self, INTO), three, NULL);
    python.drop(three);
    return written;
}

/* Whether the kernel has a result of this shape for these sizes. */
static int has_shapes(const door *door, const int64_t *sizes) {
    const noyau_kernel *kernel = door->kernel;
    int64_t dims[door->most_dims + 1];
    for (int32_t k = 0; k < kernel->outputs; k++) {
        kernel->shape(sizes, k, dims);
        for (int32_t axis = 0; axis < kernel->ranks[kernel->inputs + k]; axis++)
            if (dims[axis] < 0) return 0;
    }
    return 1;
}

/* door(arguments, out=None): the results, or MISS where the arguments are not of the door's key. */
static py *noyau_door_call(py *self, py *const *given, ptrdiff_t count) {
    const door *door = python.long_address(python.tuple_item(self, DOOR));
    const noyau_kernel *kernel = door->kernel;
    py *miss = python.tuple_item(self, MISS);
    const int32_t inputs = kernel->inputs;
    if (count < 1 || count > 2 || type_of(given[0]) != python.tuple || python.tuple_size(given[0]) != inputs)
        return returned(miss);
    void *buffers[inputs + kernel->outputs + kernel->scratch + 1];
    int64_t dims[door->dims + 1], sizes[kernel->sizes + 1], *next = dims;
    const int64_t *shapes[inputs + 1];
    _Alignas(SLOT) unsigned char slots[inputs + 1][SLOT];
    for (int32_t k = 0; k < inputs; k++) {
        const argument_end *end = &door->arguments[k];
        if (!read_argument(end, python.tuple_item(given[0], k), &buffers[k], slots[k], next)) return returned(miss);
        shapes[k] = next;
        next += 2 * end->rank;
    }
    if (kernel->bind(shapes, sizes) || !has_shapes(door, sizes)) return returned(miss);
    if (count == 2 && given[1] != python.none) return into_given(self, door, given[0], given[1], buffers, sizes);
    return into_new(self, door, buffers, sizes);
}

/* ---- what the library offers ---- */

typedef struct { /* Python's PyMethodDef */
    const char *name;
    py *(*function)(py *, py *const *, ptrdiff_t);
    int flags;
    const char *doc;
} method;

NOYAU_EXPORT method noyau_door_method;
method noyau_door_method = {"door", noyau_door_call, 0x80 /* METH_FASTCALL */,
                            "door(arguments, out=None): the results, or MISS"};

/* Takes Python's functions and objects, in the order of `python`; `bytes` is that struct's size as the caller knows it. */
NOYAU_EXPORT int32_t noyau_door_open(const void *table, int64_t bytes);
int32_t noyau_door_open(const void *table, int64_t bytes) {
    if (bytes != (int64_t)sizeof python) return 0;
    memcpy(&python, table, sizeof python);
    return 1;
}
