/* The arguments of a call of a kernel from Python. Before this text stand noyau.h and threads.c.

   Python's functions come as a table of addresses, all of them of the stable ABI, so that this needs no header of
   Python's and one library serves every version. Arrays are read as NumPy's documented struct; its offset behind the
   head of an object is passed, and was tested, when the library was loaded. */
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

/* One argument. `scalar`: the type of its NumPy scalars, or NULL; `convert`: makes an array of rank 0 from a Python
   number where C does not; `equals`: the only value it may have, or NULL; `ones`: a bit for each axis of one cell, or
   -1 where that does not matter; `axes`: of a permuted array, from the outermost in memory. */
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

/* `constants`: a tuple of the last arguments, which no caller passes. `made_apart`: from so many bytes on, a result is
   allocated by Python. */
typedef struct {
    const noyau_kernel *kernel;
    const argument_end *arguments;
    const result_end *results;
    py *constants;
    int64_t dims, most_dims, made_apart;
} fast_call;

/* The items of `self` of a fast call, in order; the last two are for tensors alone. */
enum { FAST_CALL, MISS, EMPTY, INTO, FAILURES, LARGE, NAME };

static py *type_of(py *object) { return *(py **)((char *)object + python.head - sizeof(py *)); }
static void *inside(py *object) { return (char *)object + python.head; }

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

/* The layout of an array that is not packed, like `layout_of` in Python; -1 where it must be copied. */
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

/* Whether cells have the layout of their end; extents, then strides in cells, go to `dims`. */
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
    if (type_of(object) != python.ndarray) return -1;
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

/* Writes a number, of Python or of NumPy, to `slot` in the dtype of its end. */
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

/* Reads an array for a fast call: 1; 0 where it is not of the argument's kind, -1 where it is no array at all. */
typedef int reader(const argument_end *end, py *object, void **data, int64_t *dims);

/* Reads the address of an argument's cells, or its number into `slot`; and its shape and strides. */
static int read_argument(reader *read, const argument_end *end, py *object, void **data, void *slot, int64_t *dims) {
    const int array = read(end, object, data, dims);
    if (array == 0 || (array > 0 && !(end->takes & ARRAYS))) return 0;
    if (array < 0) {
        if (end->rank || !read_number(end, object, slot)) return 0;
        *data = slot;
    }
    return !end->equals || !memcmp(*data, end->equals, (size_t)end->item);
}
