/* A call of a kernel on tensors of PyTorch. Before this text stand noyau.h and the files of the NumPy runtime.

   Tensors are read by DLPack's exchange interface for C (dlpack.h 1.3, `DLPackExchangeAPI`), which their type carries:
   its addresses come from Python, and nothing of PyTorch's own headers is needed. */

typedef struct { /* DLTensor */
    void *data;
    int32_t device_type, device_id;
    int32_t rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor_view;

static struct {
    int (*read)(py *, tensor_view *); /* 0, or -1 with an error of Python's */
    py *tensor, *parameter;           /* the types that are read */
} torch;

enum { ON_THE_CPU = 1, MOST_RANK = 64 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

/* DLPack's code and bits of ONNX's element types, as code << 8 | bits. */
static int kind_of(int32_t onnx) {
    static const int kinds[] = {
        [F32] = DL_FLOAT << 8 | 32, [U8] = DL_UINT << 8 | 8,   [I8] = DL_INT << 8 | 8,     [U16] = DL_UINT << 8 | 16,
        [I16] = DL_INT << 8 | 16,   [I32] = DL_INT << 8 | 32,  [I64] = DL_INT << 8 | 64,   [BOOL] = DL_BOOL << 8 | 8,
        [10] = DL_FLOAT << 8 | 16,  [F64] = DL_FLOAT << 8 | 64, [U32] = DL_UINT << 8 | 32, [U64] = DL_UINT << 8 | 64,
        [16] = DL_BFLOAT << 8 | 16,
    };
    const int known = sizeof kinds / sizeof kinds[0];
    return onnx > 0 && onnx < known && kinds[onnx] ? kinds[onnx] : -1;
}

/* Reads a tensor's description; 0 for a tensor without memory on the CPU. */
static int view_tensor(py *object, tensor_view *view) {
    if (torch.read(object, view)) return python.error_clear(), 0;
    return view->device_type == ON_THE_CPU && view->lanes == 1 && view->rank <= MOST_RANK;
}

static int read_tensor(const argument_end *end, py *object, void **data, int64_t *dims) {
    if (type_of(object) != torch.tensor && type_of(object) != torch.parameter) return -1;
    tensor_view view;
    if (!view_tensor(object, &view) || view.rank != end->rank) return 0;
    if ((view.code << 8 | view.bits) != kind_of(end->onnx)) return 0;
    intptr_t extents[MOST_RANK], strides[MOST_RANK];
    int32_t axes[MOST_RANK], cells_there = 1;
    for (int32_t axis = 0; axis < view.rank; axis++) {
        cells_there &= view.shape[axis] != 0;
        extents[axis] = view.shape[axis];
        strides[axis] = view.strides[axis] * end->item;
        axes[axis] = axis;
    }
    if (cells_there && !view.data) return 0; /* zeros without memory in torch */
    const array_fields cells = {(char *)view.data + view.byte_offset, view.rank, extents, strides, NULL, NULL, 0};
    if ((uintptr_t)cells.data % (uintptr_t)end->item) return 0;
    return read_cells(end, &cells, is_packed(&cells, axes, end->item), data, dims);
}

/* Allocates a tensor of any values, and gives the address of its cells. A large one may lie in used memory. */
static py *make_tensor(py *self, const fast_call *call, const result_end *end, int32_t rank, const int64_t *dims,
                       void **data) {
    double bytes = end->item;
    for (int32_t axis = 0; axis < rank; axis++) bytes *= (double)dims[axis];
    py *given = python.tuple_new(1), *shape = given ? shape_tuple(rank, dims) : NULL;
    if (!shape) return given ? python.drop(given), NULL : NULL;
    python.tuple_put(given, 0, shape);
    py *made = python.call(python.tuple_item(self, bytes < (double)call->made_apart ? EMPTY : LARGE), given, end->descr);
    python.drop(given);
    tensor_view view;
    if (made && torch.read(made, &view)) return python.drop(made), NULL;
    if (made) *data = (char *)view.data + view.byte_offset;
    return made;
}

/* tensor_fast_call(arguments): the results, or MISS. */
static py *noyau_tensor_fast_call_run(py *self, py *const *given, ptrdiff_t count) {
    if (count != 1) return returned(python.tuple_item(self, MISS));
    return called(self, given[0], NULL, read_tensor, make_tensor);
}

NOYAU_EXPORT method noyau_tensor_fast_call_method;
method noyau_tensor_fast_call_method = {"tensor_fast_call", noyau_tensor_fast_call_run, 0x80 /* METH_FASTCALL */,
                                   "tensor_fast_call(arguments): the results, or MISS"};

/* Takes the function that reads tensors, and their types. */
NOYAU_EXPORT void noyau_tensor_fast_call_open(int (*read)(py *, tensor_view *), py *tensor, py *parameter);
void noyau_tensor_fast_call_open(int (*read)(py *, tensor_view *), py *tensor, py *parameter) {
    torch.read = read;
    torch.tensor = tensor;
    torch.parameter = parameter;
}

/* Takes the function that opens a span of a recording profiler, for a tuple of a name; NULL: none records. */
NOYAU_EXPORT void noyau_tensor_fast_call_mark(py *opens);
void noyau_tensor_fast_call_mark(py *opens) { marker = opens; }

/* Shares launches with the team of an OpenMP that is loaded already: its GOMP_parallel and omp_get_max_threads. */
NOYAU_EXPORT void noyau_team_open(void (*run)(void (*)(void *), void *, unsigned, unsigned), int (*most)(void));
void noyau_team_open(void (*run)(void (*)(void *), void *, unsigned, unsigned), int (*most)(void)) {
    team.run = run;
    team.most = most;
}
