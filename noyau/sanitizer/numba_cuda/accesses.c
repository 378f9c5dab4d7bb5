/* Accesses of a Numba-CUDA kernel that runs in Python: `load(x, key, site)` is x[key], `store(value, x, key, site)` is
   x[key] = value; the cells that they touch become rows for shadow_replay. `note(a, b, c, d)` adds any other row.

   A key that is not a cell of a plain array (a slice, an index outside, a record) is left to Python's own x[key], which
   records by itself. Python's functions, all of the stable ABI, and offsets within objects come as a table of addresses
   and numbers, so that no header of Python is needed. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct py py; /* a Python object, by its address alone */

static struct {
    py *(*item)(py *, py *);
    int (*put_item)(py *, py *, py *);
    py *(*call)(py *, py *, py *);
    void *(*address)(py *);
    py *(*long_new)(long long);
    long long (*long_value)(py *);
    unsigned long long (*long_bits)(py *);
    py *(*truth_new)(long);
    double (*float_value)(py *);
    ptrdiff_t (*tuple_size)(py *);
    py *(*tuple_item)(py *, ptrdiff_t);
    py *(*error)(void);
    void (*error_clear)(void);
    void (*keep)(py *);
    void (*drop)(py *);
    py *array, *integer, *real, *tuple, *int32, *int64, *float32, *float64, *none, *nothing; /* types, None, () */
    int64_t head, at_data, at_layout; /* bytes of an object's head, and offsets of an array's `data`, `layout` */
} python;

enum { MOST_AXES = 4, READ = 0, WRITE = 1, SAME = 3, ACCESSES = 8, ENTER = -2 };
enum { OTHER, SIGNED, UNSIGNED, BOOLEAN, FLOAT };

/* The layout of a plain array, as arrays.py writes it: an element has `width` cells of its memory; a step counts cells,
   a stride bytes. */
typedef struct {
    char *data;
    int64_t memory, kind, item, is_writeable, width, rank, start;
    struct {
        int64_t extent, step, stride;
    } axes[MOST_AXES];
} layout;

/* Rows that wait. `idle`: owners that entered and touched nothing before the next owner entered. */
typedef struct {
    int64_t count, most, owner, idle, has_just_entered;
    py *play; /* passes them on, and sets `count` to 0 */
    int64_t (*rows)[4];
} queue;

static py *type_of(py *object) { return *(py **)((char *)object + python.head - sizeof(py *)); }
static py *inside(py *object, int64_t at) { return *(py **)((char *)object + at); }

static int add(queue *q, int64_t word, int64_t cell, int64_t owner, int64_t site) {
    int64_t *row = q->rows[q->count++];
    row[0] = word, row[1] = cell, row[2] = owner, row[3] = site;
    if (q->count < q->most) return 1;
    py *done = python.call(q->play, python.nothing, NULL);
    if (done) python.drop(done);
    return done != NULL;
}

static int touch(queue *q, const layout *a, int64_t how, int64_t cell, py *site) {
    const int64_t number = python.long_value(site);
    q->has_just_entered = 0;
    for (int64_t i = 0; i < a->width; ++i)
        if (!add(q, ACCESSES * a->memory + how, cell + i, q->owner, number)) return 0;
    return 1;
}

static const layout *layout_of(py *object) {
    if (type_of(object) != python.array) return NULL;
    py *address = inside(object, python.at_layout);
    return address && address != python.none ? python.address(address) : NULL;
}

/* Whether an index is an integer within an axis. */
static int is_within(py *index, int64_t extent, int64_t *value) {
    py *const type = type_of(index);
    if (type == python.integer) {
        *value = python.long_value(index);
        if (*value == -1 && python.error()) python.error_clear();
    } else if (type == python.int32) {
        *value = *(int32_t *)((char *)index + python.head);
    } else if (type == python.int64) {
        *value = *(int64_t *)((char *)index + python.head);
    } else {
        return 0;
    }
    return *value >= 0 && *value < extent;
}

/* The cell of a key, with its address in `where`; -1 for a key that is not one cell. */
static int64_t cell_of(const layout *a, py *key, char **where) {
    int64_t cell = a->start, bytes = 0, index;
    if (type_of(key) != python.tuple) {
        if (a->rank != 1 || !is_within(key, a->axes[0].extent, &index)) return -1;
        *where = a->data + index * a->axes[0].stride;
        return cell + index * a->axes[0].step;
    }
    if (python.tuple_size(key) != a->rank) return -1;
    for (int64_t axis = 0; axis < a->rank; ++axis) {
        if (!is_within(python.tuple_item(key, axis), a->axes[axis].extent, &index)) return -1;
        cell += index * a->axes[axis].step, bytes += index * a->axes[axis].stride;
    }
    *where = a->data + bytes;
    return cell;
}

/* An integer of up to 63 bits, as an object of Python. */
static py *whole_number(const layout *a, const char *where) {
    const int is_signed = a->kind == SIGNED;
    int64_t wide = 0;
    int32_t word = 0;
    int16_t half = 0;
    switch (a->item) {
    case 1: wide = is_signed ? *(const int8_t *)where : *(const uint8_t *)where; break;
    case 2: memcpy(&half, where, 2), wide = is_signed ? half : (uint16_t)half; break;
    case 4: memcpy(&word, where, 4), wide = is_signed ? word : (int64_t)(uint32_t)word; break;
    default: memcpy(&wide, where, 8); break;
    }
    return python.long_new(wide);
}

static py *load(py *self, py *const *args, ptrdiff_t count) {
    queue *q = python.address(self);
    const layout *a = count == 3 ? layout_of(args[0]) : NULL;
    char *where = NULL;
    const int64_t cell = a ? cell_of(a, args[1], &where) : -1;
    if (cell < 0) return python.item(args[0], args[1]);
    if (!touch(q, a, READ, cell, args[2])) return NULL;
    if (a->kind == BOOLEAN) return python.truth_new(*where);
    if (a->kind == SIGNED || (a->kind == UNSIGNED && a->item < 8)) return whole_number(a, where);
    return python.item(inside(args[0], python.at_data), args[1]);
}

/* Whether a number was stored as on a device, where integers wrap around; other values are left to Python. */
static int put(const layout *a, py *value, char *where) {
    py *const type = type_of(value);
    if (type == python.integer && (a->kind == SIGNED || a->kind == UNSIGNED)) {
        const unsigned long long bits = python.long_bits(value); /* the lowest come first */
        memcpy(where, &bits, (size_t)a->item);
        return 1;
    }
    if (a->kind != FLOAT || (type != python.real && type != python.float32 && type != python.float64)) return 0;
    const double number = python.float_value(value);
    const float narrow = (float)number;
    memcpy(where, a->item == 8 ? (const void *)&number : (const void *)&narrow, (size_t)a->item);
    return 1;
}

static py *store(py *self, py *const *args, ptrdiff_t count) {
    queue *q = python.address(self);
    const layout *a = count == 4 ? layout_of(args[1]) : NULL;
    char *where = NULL, before[8];
    const int64_t cell = a && a->kind != OTHER && a->is_writeable ? cell_of(a, args[2], &where) : -1;
    if (cell >= 0) memcpy(before, where, (size_t)a->item);
    if (cell >= 0 && put(a, args[0], where)) {
        if (!touch(q, a, memcmp(before, where, (size_t)a->item) ? WRITE : SAME, cell, args[3])) return NULL;
    } else if (python.put_item(args[1], args[2], args[0])) {
        return NULL;
    }
    return python.keep(python.none), python.none;
}

static py *note(py *self, py *const *args, ptrdiff_t count) {
    queue *q = python.address(self);
    int64_t row[4] = {0};
    for (ptrdiff_t i = 0; i < count && i < 4; ++i) row[i] = python.long_value(args[i]);
    if (row[0] == ENTER) {
        q->owner = row[1];
        q->idle += q->has_just_entered;
    }
    q->has_just_entered = row[0] == ENTER;
    if (!add(q, row[0], row[1], row[2], row[3])) return NULL;
    return python.keep(python.none), python.none;
}

/* The PyMethodDef of each function, which takes an array of arguments (METH_FASTCALL). */
typedef struct {
    const char *name;
    py *(*function)(py *, py *const *, ptrdiff_t);
    int flags;
    const char *text;
} method;

enum { FASTCALL = 0x80 };
NOYAU_EXPORT method noyau_load_method = {"load", load, FASTCALL, NULL};
NOYAU_EXPORT method noyau_store_method = {"store", store, FASTCALL, NULL};
NOYAU_EXPORT method noyau_note_method = {"note", note, FASTCALL, NULL};

NOYAU_EXPORT void noyau_accesses_open(const void *table, int64_t bytes) {
    if (bytes == (int64_t)sizeof python) memcpy(&python, table, sizeof python);
}
