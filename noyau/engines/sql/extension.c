/* An extension of DuckDB with one function. The kernels and the macros in capitals precede this text, the tables of its
   programs follow it. It uses the stable C API, version 1.2.0, whose functions have fixed indices. */
#include <stdio.h>
#include <string.h>

enum { MOST = 64, RANK = 8, OVERFLOW = -1 }; /* limits: values of a program, buffers and sizes; axes. A status. */

typedef struct {
    void *data;
    int64_t bytes; /* of a cell */
    int32_t rank;
    int64_t shape[RANK];
} value;

typedef struct {
    const noyau_kernel *kernel;
    const int32_t *places; /* indices into the values: of the inputs, then of the outputs */
} program_step;

typedef struct {
    const value *values; /* inputs, constants, results of steps */
    const program_step *steps;
    const int32_t *results;
    int32_t count, inputs, step_count, outputs;
} program;

static const program step_program;
#if AGGREGATE
static const program merge_program, finish_program;
#endif
static const uint32_t column_types[] = {COLUMN_TYPES};

typedef void *handle;

typedef struct {
    void (*set_error)(handle info, const char *message);
    handle *(*get_database)(handle info);
    const void *(*get_api)(handle info, const char *version);
} extension_access;

static void (*api[256])(void);
#define API(place, result, ...) ((result(*)(__VA_ARGS__))api[place])

static handle column_of(handle chunk, uint64_t at) { return API(190, handle, handle, uint64_t)(chunk, at); }
static uint64_t size_of(handle chunk) { return API(191, uint64_t, handle)(chunk); }
static void *data_of(handle vector) { return API(194, void *, handle)(vector); }
static uint64_t *validity_of(handle vector) { return API(195, uint64_t *, handle)(vector); }
static int is_valid(const uint64_t *validity, uint64_t row) {
    return !validity || (validity[row / 64] >> (row % 64) & 1);
}

static void set_null(handle vector, uint64_t row) {
    API(196, void, handle)(vector);
    validity_of(vector)[row / 64] &= ~((uint64_t)1 << (row % 64));
}

static void *results_of(handle vector) {
    return data_of(RESULT_CELLS ? API(204, handle, handle)(vector) : vector); /* an ARRAY's cells are in its child */
}

/* ---- an arena, freed at the end of a callback ---- */

enum { BLOCK_BYTES = 1 << 16, LINE_BYTES = 64 };

typedef struct block {
    struct block *before;
    _Alignas(LINE_BYTES) char bytes[];
} block;

typedef struct {
    block *last;
    uint64_t used, size;
} room;

static void *take(room *from, uint64_t bytes) {
    bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    if (!from->last || from->size - from->used < bytes) {
        const uint64_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block *fresh = aligned_alloc(LINE_BYTES, sizeof(block) + size);
        if (!fresh) return NULL;
        fresh->before = from->last;
        *from = (room){fresh, 0, size};
    }
    from->used += bytes;
    return from->last->bytes + from->used - bytes;
}

/* Frees the memory taken since `mark`, an earlier copy of `*from`. */
static void give_back(room *from, room mark) {
    while (from->last != mark.last) {
        block *before = from->last->before;
        free(from->last);
        from->last = before;
    }
    *from = mark;
}

static const room EMPTY = {NULL, 0, 0};

/* ---- a program of kernels ---- */

static uint64_t bytes_of(const value *whose) {
    uint64_t bytes = (uint64_t)whose->bytes;
    for (int32_t axis = 0; axis < whose->rank; axis++) bytes *= (uint64_t)whose->shape[axis];
    return bytes;
}

static int32_t run_step(const program_step *step, value *values, room *memory) {
    const noyau_kernel *kernel = step->kernel;
    const int64_t *shapes[MOST];
    void *buffers[2 * MOST];
    int64_t sizes[MOST];
    int32_t filled = 0;
    for (; filled < kernel->inputs; filled++) {
        shapes[filled] = values[step->places[filled]].shape;
        buffers[filled] = values[step->places[filled]].data;
    }
    kernel->bind(shapes, sizes);
    for (int32_t at = 0; at < kernel->outputs; at++, filled++) {
        value *result = &values[step->places[filled]];
        kernel->shape(sizes, at, result->shape);
        if (!result->data) result->data = take(memory, bytes_of(result));
        if (!(buffers[filled] = result->data)) return NOYAU_OUT_OF_MEMORY;
    }
    for (int32_t at = 0; at < kernel->scratch; at++, filled++)
        if (!(buffers[filled] = take(memory, (uint64_t)kernel->scratch_bytes(sizes, at)))) return NOYAU_OUT_OF_MEMORY;
    noyau_call call = {buffers, sizes, 0};
    for (; call.launch < kernel->launches; call.launch++) {
        const int64_t extent = kernel->extent(sizes, call.launch);
        const int32_t status = extent > 0 ? kernel->run(&call, 0, extent) : NOYAU_OK;
        if (status) return status;
    }
    return NOYAU_OK;
}

/* Runs a program on `rows` rows, which replace each extent of -1 in its table. */
static int32_t run(const program *which, void *const *inputs, int64_t rows, void *const *outputs, room *memory) {
    value values[MOST];
    memcpy(values, which->values, (size_t)which->count * sizeof *values);
    for (int32_t at = 0; at < which->count; at++)
        for (int32_t axis = 0; axis < values[at].rank; axis++)
            if (values[at].shape[axis] < 0) values[at].shape[axis] = rows;
    for (int32_t at = 0; at < which->inputs; at++) values[at].data = inputs[at];
    for (int32_t at = 0; at < which->outputs; at++)
        if (!values[which->results[at]].data) values[which->results[at]].data = outputs[at];
    for (int32_t at = 0; at < which->step_count; at++) {
        const int32_t status = run_step(&which->steps[at], values, memory);
        if (status) return status;
    }
    for (int32_t at = 0; at < which->outputs; at++) { /* copy inputs, constants and repeated results */
        const value *result = &values[which->results[at]];
        if (result->data != outputs[at]) memcpy(outputs[at], result->data, bytes_of(result));
    }
    return NOYAU_OK;
}

static uint64_t result_bytes(void) {
#if AGGREGATE
    const program *last = &finish_program;
#else
    const program *last = &step_program;
#endif
    return (uint64_t)last->values[last->results[0]].bytes * (RESULT_CELLS ? RESULT_CELLS : 1);
}

static const char *failure(int32_t status) {
    if (status == OVERFLOW) return NAME ": a sum of integers overflows: make DOUBLE of its column, or sum in a wider one";
    return status == NOYAU_INDEX_OUT_OF_BOUNDS ? NAME ": an index is outside of what it looks up" : NAME ": out of memory";
}

/* Packs the cells of the `rows` rows that `order` lists into new memory, for each column. Returns the number of rows,
   or -1 if out of memory. */
static int64_t gather(handle chunk, void **columns, const uint32_t *order, int64_t rows, room *memory) {
    for (int32_t at = 0; at < COLUMNS; at++) {
        const char *cells = data_of(column_of(chunk, (uint64_t)at));
        const size_t bytes = (size_t)step_program.values[at].bytes;
        char *packed = take(memory, (uint64_t)rows * bytes);
        if (!packed) return -1;
        if (bytes == 8)
            for (int64_t row = 0; row < rows; row++) ((uint64_t *)packed)[row] = ((const uint64_t *)cells)[order[row]];
        else
            for (int64_t row = 0; row < rows; row++) memcpy(packed + row * bytes, cells + order[row] * bytes, bytes);
        columns[at] = packed;
    }
    return rows;
}

/* Writes the numbers of the rows without a null to `order`, and returns their count. */
static int64_t valid_rows(handle chunk, uint32_t *order) {
    const uint64_t *validities[COLUMNS];
    const int64_t size = (int64_t)size_of(chunk);
    int64_t rows = 0;
    for (int32_t at = 0; at < COLUMNS; at++) validities[at] = validity_of(column_of(chunk, (uint64_t)at));
    for (int64_t row = 0; row < size; row++) {
        int valid = 1;
        for (int32_t at = 0; at < COLUMNS; at++) valid &= is_valid(validities[at], (uint64_t)row);
        order[rows] = (uint32_t)row;
        rows += valid;
    }
    return rows;
}

#if AGGREGATE
/* ---- an aggregate: a state is the number of rows, then its parts, each padded to whole words ---- */

enum { WORD = 8 };

/* Writes the addresses of the parts to `parts`, and returns the bytes of a state. */
static uint64_t parts_of(char *state, void **parts) {
    uint64_t end = WORD;
    for (int32_t at = 0; at < step_program.outputs; at++) {
        parts[at] = state + end;
        end += (bytes_of(&merge_program.values[at]) + WORD - 1) / WORD * WORD;
    }
    return end;
}

static uint64_t state_size(handle info) {
    void *parts[MOST];
    (void)info;
    return parts_of(NULL, parts);
}

static int32_t merge_into(char *state, const char *other, room *memory) {
    const uint64_t size = state_size(NULL);
    int64_t rows[2];
    void *inputs[2 * MOST], *outputs[MOST];
    char *merged = take(memory, size);
    if (!merged) return NOYAU_OUT_OF_MEMORY;
    memcpy(&rows[0], state, sizeof *rows);
    memcpy(&rows[1], other, sizeof *rows);
    if (!rows[1]) return NOYAU_OK;
    if (!rows[0]) {
        memcpy(state, other, size);
        return NOYAU_OK;
    }
    parts_of(state, inputs);
    parts_of((char *)other, inputs + step_program.outputs);
    parts_of(merged, outputs);
    const int32_t status = run(&merge_program, inputs, 0, outputs, memory);
    if (status) return status;
    rows[0] += rows[1];
    memcpy(merged, rows, sizeof *rows);
    memcpy(state, merged, size);
    return NOYAU_OK;
}

static int32_t take_in(char *state, void *const *columns, int64_t rows, room *memory) {
    void *parts[MOST];
    char *fresh = take(memory, state_size(NULL));
    if (!fresh) return NOYAU_OUT_OF_MEMORY;
    parts_of(fresh, parts);
    memcpy(fresh, &rows, sizeof rows);
    const int32_t status = run(&step_program, columns, rows, parts, memory);
    return status ? status : merge_into(state, fresh, memory);
}

static void initialise(handle info, char *state) { memset(state, 0, state_size(info)); }

/* Sorts the rows by state, stably: kernels run on slices up to `ends`. Returns the states, or -1 if out of memory. */
static int64_t sort_by_state(uint32_t *order, int64_t rows, char **states, int64_t *ends, room *memory) {
    uint64_t slots = 4;
    while (slots < 2 * (uint64_t)rows) slots *= 2;
    int64_t groups = 0;
    uint32_t *table = take(memory, slots * sizeof *table), *group = take(memory, (uint64_t)rows * sizeof *group);
    uint32_t *sorted = take(memory, (uint64_t)rows * sizeof *sorted);
    char **known = take(memory, (uint64_t)rows * sizeof *known);
    if (!table || !group || !sorted || !known) return -1;
    memset(table, 0, slots * sizeof *table);
    for (int64_t row = 0; row < rows; row++) {
        char *state = states[order[row]];
        uint64_t slot = ((uint64_t)(uintptr_t)state * 0x9E3779B97F4A7C15u >> 20) & (slots - 1);
        while (table[slot] && known[table[slot] - 1] != state) slot = (slot + 1) & (slots - 1);
        if (!table[slot]) {
            known[groups] = state;
            ends[groups] = 0;
            table[slot] = (uint32_t)++groups;
        }
        ends[group[row] = table[slot] - 1]++;
    }
    for (int64_t at = 0, start = 0; at < groups; at++) {
        start += ends[at];
        ends[at] = start - ends[at];
    }
    for (int64_t row = 0; row < rows; row++) sorted[ends[group[row]]++] = order[row];
    memcpy(order, sorted, (size_t)rows * sizeof *order);
    return groups;
}

static int32_t update_all(handle chunk, char **states, room *memory) {
    const int64_t size = (int64_t)size_of(chunk);
    uint32_t *order = take(memory, (uint64_t)(size + 1) * sizeof *order);
    int64_t *ends = take(memory, (uint64_t)(size + 1) * sizeof *ends);
    void *columns[COLUMNS];
    if (!order || !ends) return NOYAU_OUT_OF_MEMORY;
    const int64_t rows = valid_rows(chunk, order);
    int alone = rows == size;
    for (int64_t row = 1; alone && row < rows; row++) alone = states[row] == states[0];
    if (alone) {
        for (int32_t at = 0; at < COLUMNS; at++) columns[at] = data_of(column_of(chunk, (uint64_t)at));
        return rows ? take_in(states[0], columns, rows, memory) : NOYAU_OK;
    }
    const int64_t groups = sort_by_state(order, rows, states, ends, memory);
    if (groups < 0 || gather(chunk, columns, order, rows, memory) < 0) return NOYAU_OUT_OF_MEMORY;
    for (int64_t at = 0, start = 0; at < groups; start = ends[at++]) {
        const room mark = *memory;
        const int32_t status = take_in(states[order[start]], columns, ends[at] - start, memory);
        give_back(memory, mark);
        if (status) return status;
        for (int32_t column = 0; column < COLUMNS; column++)
            columns[column] = (char *)columns[column] + (size_t)(ends[at] - start) * (size_t)step_program.values[column].bytes;
    }
    return NOYAU_OK;
}

static void update(handle info, handle chunk, char **states) {
    room memory = EMPTY;
    const int32_t status = update_all(chunk, states, &memory);
    give_back(&memory, EMPTY);
    if (status) API(237, void, handle, const char *)(info, failure(status));
}

static void combine(handle info, char **sources, char **targets, uint64_t count) {
    for (uint64_t at = 0; at < count; at++) {
        room memory = EMPTY;
        const int32_t status = merge_into(targets[at], sources[at], &memory);
        give_back(&memory, EMPTY);
        if (status) API(237, void, handle, const char *)(info, failure(status));
    }
}

static void finalize(handle info, char **states, handle result, uint64_t count, uint64_t offset) {
    char *results = results_of(result);
    for (uint64_t at = 0; at < count; at++) {
        room memory = EMPTY;
        void *inputs[MOST], *outputs[1] = {results + (offset + at) * result_bytes()};
        parts_of(states[at], inputs);
        const int32_t parts = step_program.outputs - SUMS; /* the last part is the flag that a sum has wrapped */
        const int has_wrapped = SUMS && *(const unsigned char *)inputs[parts];
        inputs[parts] = states[at]; /* the number of rows */
        int64_t rows;
        memcpy(&rows, states[at], sizeof rows);
        if (!rows) {
            set_null(result, offset + at);
            continue;
        }
        const int32_t status = has_wrapped ? OVERFLOW : run(&finish_program, inputs, rows, outputs, &memory);
        give_back(&memory, EMPTY);
        if (status) API(237, void, handle, const char *)(info, failure(status));
    }
}

static uint32_t register_function(handle connection, const handle *types, handle result) {
    handle function = API(226, handle, void)();
    API(228, void, handle, const char *)(function, NAME);
    for (int32_t at = 0; at < COLUMNS; at++) API(229, void, handle, handle)(function, types[at]);
    API(230, void, handle, handle)(function, result);
    typedef void (*callback)(void);
    API(231, void, handle, callback, callback, callback, callback, callback)
    (function, (callback)state_size, (callback)initialise, (callback)update, (callback)combine, (callback)finalize);
    const uint32_t status = API(233, uint32_t, handle, handle)(connection, function);
    API(227, void, handle *)(&function);
    return status;
}
#else
/* ---- a scalar function ---- */

static int32_t map_all(handle chunk, handle result, room *memory) {
    const int64_t size = (int64_t)size_of(chunk);
    uint32_t *order = take(memory, (uint64_t)(size + 1) * sizeof *order);
    void *columns[COLUMNS], *outputs[1];
    char *results = results_of(result);
    if (!order) return NOYAU_OUT_OF_MEMORY;
    const int64_t rows = valid_rows(chunk, order);
    if (rows == size) {
        for (int32_t at = 0; at < COLUMNS; at++) columns[at] = data_of(column_of(chunk, (uint64_t)at));
        outputs[0] = results;
        return run(&step_program, columns, rows, outputs, memory);
    }
    if (!(outputs[0] = take(memory, (uint64_t)rows * result_bytes()))) return NOYAU_OUT_OF_MEMORY;
    if (gather(chunk, columns, order, rows, memory) < 0) return NOYAU_OUT_OF_MEMORY;
    const int32_t status = rows ? run(&step_program, columns, rows, outputs, memory) : NOYAU_OK;
    for (int64_t row = 0, at = 0; row < size; row++)
        if (at < rows && order[at] == row)
            memcpy(results + row * result_bytes(), (char *)outputs[0] + at++ * result_bytes(), result_bytes());
        else
            set_null(result, (uint64_t)row);
    return status;
}

static void map(handle info, handle chunk, handle result) {
    room memory = EMPTY;
    const int32_t status = map_all(chunk, result, &memory);
    give_back(&memory, EMPTY);
    if (status) API(221, void, handle, const char *)(info, failure(status));
}

static uint32_t register_function(handle connection, const handle *types, handle result) {
    handle function = API(209, handle, void)();
    API(211, void, handle, const char *)(function, NAME);
    for (int32_t at = 0; at < COLUMNS; at++) API(215, void, handle, handle)(function, types[at]);
    API(216, void, handle, handle)(function, result);
    API(218, void, handle, void (*)(handle, handle, handle))(function, map);
    const uint32_t status = API(219, uint32_t, handle, handle)(connection, function);
    API(210, void, handle *)(&function);
    return status;
}
#endif

__attribute__((visibility("default"))) bool ENTRY(handle info, extension_access *access) {
    const void *functions = access->get_api(info, "v1.2.0");
    handle *database = functions ? access->get_database(info) : NULL;
    handle connection = NULL, types[COLUMNS];
    if (!database) return false;
    memcpy(api, functions, sizeof api);
    if (API(3, uint32_t, handle, handle *)(*database, &connection)) return false;
    for (int32_t at = 0; at < COLUMNS; at++) types[at] = API(156, handle, uint32_t)(column_types[at]);
    handle cell = API(156, handle, uint32_t)(RESULT_TYPE);
    handle result = RESULT_CELLS ? API(160, handle, handle, uint64_t)(cell, RESULT_CELLS) : cell;
    const uint32_t status = register_function(connection, types, result);
    for (int32_t at = 0; at < COLUMNS; at++) API(184, void, handle *)(&types[at]);
    if (RESULT_CELLS) API(184, void, handle *)(&result);
    API(184, void, handle *)(&cell);
    API(6, void, handle *)(&connection); /* it would keep the database open */
    if (status) access->set_error(info, NAME " cannot be registered: another function has this name");
    return !status;
}
