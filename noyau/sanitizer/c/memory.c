/* Blocks of memory: arguments and allocations lie in an arena, with guards between them; no address is used twice.
   Globals, statics and __shared__ arrays lie where the linker puts them. */

enum { GUARD_LEAST = 4096, MOST_GUARD = 1 << 20 };
static char *arena, *arena_end, *arena_free;
static block *blocks, *globals;
static int64_t block_count, block_room, global_count, global_room;
static block main_stack, tls_block;
static char *fiber_stacks, *fiber_stacks_end; /* the stacks of OpenMP and POSIX */
static fiber *pool;
enum { POOL = 4096, LEAST_STACK_BYTES = 1 << 17 };
static size_t pool_stack_bytes = 1 << 23; /* less if the process may not take that much */
static char *data_start, *data_end; /* of the program's own writable segment */

static void *pages(size_t bytes) {
    void *made = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return made == MAP_FAILED ? 0 : made;
}

static void fatal(const char *words) {
    refuse(words, last_site);
}

/* Pages of zeros; the shadows of small blocks, of which there may be millions, share them. */
static void *shadow_pages(size_t bytes) {
    static char *left, *end;
    if (bytes >= 1 << 16) {
        void *made = pages(bytes);
        if (made && bytes >= 1 << 22) madvise(made, bytes, MADV_HUGEPAGE); /* threads stride: TLB misses */
        return made;
    }
    if (left + bytes > end) {
        left = pages(1 << 24), end = left + (1 << 24);
        if (!left) return 0;
    }
    void *made = left;
    left += (bytes + 63) & ~(size_t)63;
    return made;
}

/* The limit on the memory of the process, with its shadow. */
static int64_t most_memory_mib;
static void require_memory(void) {
    static char words[120];
    long long all = 0, resident = 0;
    FILE *in = fopen("/proc/self/statm", "r");
    if (!in) return;
    const int count = fscanf(in, "%lld %lld", &all, &resident);
    fclose(in);
    if (count != 2 || !most_memory_mib || resident * 4096 >> 20 < most_memory_mib) return;
    snprintf(words, sizeof words, "it takes more than %lld MiB, with the shadow of its memory; try a smaller size",
             (long long)most_memory_mib);
    fatal(words);
}

static void open_arena(void) {
    const size_t most = (size_t)1 << 38;
    for (size_t bytes = most; bytes >= (size_t)1 << 30; bytes /= 2)
        if ((arena = pages(bytes))) {
            if (bytes < most) munmap(arena + (bytes /= 2), bytes); /* half of what the process may take */
            arena_end = arena + bytes, arena_free = arena + MOST_GUARD;
            return;
        }
    fatal("there is no room for the memory that is watched");
}

static block *add_block(block **list, int64_t *count, int64_t *room) {
    if (*count == *room) {
        const int64_t wider = *room ? 2 * *room : 64;
        block *grown = __real_malloc((size_t)wider * sizeof *grown);
        if (!grown) fatal("no memory");
        if (*count) __real_memcpy(grown, *list, (size_t)*count * sizeof *grown);
        *list = grown, *room = wider; /* the old list stays: it may be in use */
    }
    block *made = *list + (*count)++;
    __real_memset(made, 0, sizeof *made);
    made->shift = -1;
    return made;
}

/* Allocates a block at a multiple of `align`. The guards around it are as long as the block, between GUARD_LEAST and
   MOST_GUARD (shorter on the heap); those of arguments hold a pattern. */
static block *allocate(int64_t bytes, int64_t align, int kind, int fresh) {
    if (!arena) open_arena();
    int64_t guard = bytes < GUARD_LEAST ? GUARD_LEAST : bytes > MOST_GUARD ? MOST_GUARD : bytes;
    if (kind == HEAP && guard > 1 << 16) guard = 1 << 16;
    if (kind == HEAP && block_count > 1 << 14 && bytes < 512) guard = 64; /* a guard that is never touched is a page */
    char *start = (char *)(((uintptr_t)arena_free + (uintptr_t)guard + (uintptr_t)align - 1) & -(uintptr_t)align);
    if (bytes < 0 || start + bytes + 2 * MOST_GUARD > arena_end) return 0;
    block *made = add_block(&blocks, &block_count, &block_room);
    made->start = start, made->bytes = bytes, made->kind = (int8_t)kind, made->is_fresh = (int8_t)fresh;
    arena_free = start + bytes + guard;
    if (fresh) __real_memset(start, POISON, (size_t)bytes);
    if (kind == ARGUMENT) { /* unseen writes there are found afterwards */
        __real_memset(start - GUARD_LEAST, POISON, GUARD_LEAST);
        __real_memset(start + bytes, POISON, GUARD_LEAST);
    }
    return made;
}

static block *among(block *list, int64_t count, const char *at) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (list[middle].start <= at) low = middle + 1;
        else high = middle;
    }
    return low ? list + low - 1 : 0;
}

/* The block of the arena that begins last before an address: mostly the one that was last found for its page. */
enum { PAGES_KEPT = 1 << 10, LARGE_BYTES = 1 << 20 };
static block *block_around(const char *at) {
    static int32_t met[PAGES_KEPT];
    int32_t *last = met + ((uintptr_t)at >> 12) % PAGES_KEPT;
    block *b = *last < block_count ? blocks + *last : 0;
    if (b && at >= b->start && at < b->start + b->bytes) return b;
    b = among(blocks, block_count, at);
    if (b) *last = (int32_t)(b - blocks);
    return b;
}

static void make_cells(block *b, int shift) {
    while (shift && ((uintptr_t)b->start & (((uintptr_t)1 << shift) - 1))) --shift;
    const size_t count = (size_t)(b->bytes >> shift) + 2;
    cell *made = shadow_pages(count * sizeof *made);
    if (!made) fatal("there is no room for the shadow of what is watched");
    if (b->cells) { /* finer than before */
        const size_t before = (size_t)(b->bytes >> b->shift) + 1;
        for (size_t i = b->kind == STACK ? (size_t)b->low >> b->shift : 0; i < before; ++i) {
            if (!b->cells[i].round) continue;
            for (size_t k = 0; k < (size_t)1 << (b->shift - shift) && ((i << (b->shift - shift)) + k) < count; ++k)
                made[(i << (b->shift - shift)) + k] = b->cells[i];
        }
        if ((before + 1) * sizeof *b->cells >= 1 << 16) munmap(b->cells, (before + 1) * sizeof *b->cells);
    }
    b->cells = made, b->shift = shift;
}

static int is_left_out; /* the running block of a grid is not watched */
static void end_if_full(void);
static int is_tracking; /* the memories that the running launch uses are recorded; those that it writes always are */
static void use_address(const char *at, int how, int site);
static uint32_t versions = 1u << 31; /* of writes outside of launches */

static int launches;         /* of grids, so far */
static int64_t widest_cells; /* of the largest array that this launch has touched */

/* The last write of a block that is not watched: its bytes that look like unwritten memory are marked as written. */
static const char *left_out_at;
static int64_t left_out_bytes;
enum { MOST_BYTES_APART = 1 << 24 };
static void mark_left_out(void) {
    const char *at = left_out_at, *end = at + left_out_bytes;
    block *b = at >= arena && at < arena_end ? block_around(at) : 0;
    left_out_bytes = 0;
    if (b && b->kind != SHARED && b->widest < end - at) b->widest = end - at;
    if (!b || !b->is_fresh || b->is_freed || b->kind == SHARED || end > b->start + b->bytes || !memchr(at, POISON, (size_t)(end - at)))
        return;
    if (!b->cells && b->kind == HEAP && (end - at > 8 || !is_poison(at, (int)(end - at)))) return; /* read as wide as it is written */
    const int64_t unit = b->kind == HEAP ? end - at : b->unit;
    if (!b->cells && unit == 1 && b->bytes > MOST_BYTES_APART) { /* cells would be 64 times as large: reads are not asked */
        b->widest = 2 * (int64_t)sizeof(int64_t);
        return;
    }
    if (!b->cells) make_cells(b, unit == 8 ? 3 : unit == 4 ? 2 : unit == 2 ? 1 : 0);
    while (b->shift && (((end - at) | (at - b->start)) & ((1 << b->shift) - 1))) make_cells(b, b->shift - 1);
    for (int64_t i = (at - b->start) >> b->shift; b->start + (i << b->shift) < end; ++i)
        if (is_poison(b->start + (i << b->shift), 1 << b->shift)) b->cells[i].round |= IS_SET | IS_WRITTEN;
}
static int is_known_place; /* what its memory must know is recorded, but for such bytes */
static inline int may_hold_poison(const char *at) {
    uint64_t word;
    __real_memcpy(&word, at, sizeof word); /* behind a block lies its guard */
    word ^= 0xCBCBCBCBCBCBCBCBu;
    return ((word - 0x0101010101010101u) & ~word & 0x8080808080808080u) != 0;
}
static inline void settle_left_out(void) {
    if (is_known_place && left_out_bytes <= 8 && left_out_bytes && !may_hold_poison(left_out_at)) left_out_bytes = 0;
    if (left_out_bytes) mark_left_out();
}
static inline void leave_out(const char *at, int64_t bytes, int is_known) {
    settle_left_out(), left_out_at = at, left_out_bytes = bytes, is_known_place = is_known;
}

/* The memory that a line last touched in a launch, and how (a bit each): that it uses it is recorded then. */
typedef struct {
    const char *start, *end;
    int32_t launch;
    int8_t uses, has_marks; /* unwatched writes there may have to be marked */
    int64_t widest;         /* of such writes by this line */
} place;
static place places[MOST_SITES];
static inline int is_in_place(const place *p, const char *at, int how) {
    return p->launch == launches && at >= p->start && at < p->end && p->uses >> how & 1;
}

/* A large array of the host that nothing runs beside has no cells yet, which take more memory than it does: they are
   needed for a write whose bytes look like unwritten memory, and for a read of such bytes. */
static int filled_with = -1; /* the byte that memset writes */
enum { MOST_VALUE = 256 };
static int is_value; /* the current range is one value */
static int needs_no_cells(block *b, int64_t offset, int64_t bytes, int how, int is_scalar) {
    if (b->cells || mode != SERIAL || b->kind != HEAP || b->bytes < LARGE_BYTES) return 0;
    if (is_in_work || is_mapping || now->lanes.iteration) return 0;
    const char *at = b->start + offset;
    if (how != READ) {
        if (filled_with >= 0 && filled_with != POISON) return 1; /* no byte of it looks like unwritten memory */
        if (bytes > b->widest) b->widest = bytes;
        leave_out(at, bytes, 0);
        return 1;
    }
    return !b->is_fresh || offset < b->fresh_from || !(is_scalar || is_value) || bytes < b->widest || !is_poison(at, (int)bytes);
}

/* Makes cells, of 1 << `most` bytes at most, of which this part takes whole ones. */
static void fit_cells(block *b, int64_t offset, int64_t bytes, int most) {
    int shift = !b->cells || b->shift > most ? most : b->shift;
    while (shift && ((bytes | offset) & ((1 << shift) - 1))) --shift;
    if (!b->cells || shift < b->shift) make_cells(b, shift);
}

/* A large array that only whole copies have touched has large cells: they do for a read by the host, too. */
enum { MOST_SHIFT = 12 };
static int is_read_of_copied(block *b, int64_t offset, int64_t bytes, int site) {
    if (mode != SERIAL || is_in_work || !b->cells || b->shift <= 3) return 0;
    cell *const first = b->cells + (offset >> b->shift), *const last = b->cells + ((offset + bytes - 1) >> b->shift);
    for (cell *c = first; c <= last; ++c)
        if (!(c->round & IS_SET)) return 0;
    for (cell *c = first; c <= last && awaited_count; ++c) meet_grid(b, c, offset, READ, site);
    return 1;
}

/* A value of several cells has none where none of them was ever set: members of a struct, and padding, may stay unset. */
static int is_unset_value(const block *b, int64_t offset, int64_t bytes) {
    const uint32_t round = b->kind == SHARED ? shared_round : 0; /* what was set there before is another block's */
    for (int64_t i = offset >> b->shift; i < (offset + bytes) >> b->shift; ++i)
        if (b->cells[i].round & IS_SET && (!round || (b->cells[i].round & ~(uint32_t)FLAGS) == round)) return 0;
    return is_poison(b->start + offset, (int)bytes);
}

static void touch_block(block *b, int64_t offset, int64_t bytes, int how, int site, int is_scalar) {
    if (mode != GRID && how != READ) b->version = b->host_version = ++versions;
    if (needs_no_cells(b, offset, bytes, how, is_scalar)) return;
    if (mode == GRID && shared_fill != POISON) digest_word((uint64_t)site << 48 ^ (uint64_t)number_of(b) << 40 ^ (uint64_t)offset);
    const int log = bytes >= 8 ? 3 : bytes >= 4 ? 2 : bytes >= 2 ? 1 : 0;
    if (b->shift > 3 && how == READ && is_read_of_copied(b, offset, bytes, site)) return;
    if (!b->cells) {
        const int unit = b->unit == 8 ? 3 : b->unit == 4 ? 2 : b->unit == 2 ? 1 : b->unit == 1 && b->bytes < LARGE_BYTES ? 0 : log;
        fit_cells(b, offset, bytes, is_scalar || b->bytes < LARGE_BYTES ? unit : MOST_SHIFT);
    } else if (b->shift && ((bytes | offset) & ((1 << b->shift) - 1) || (is_scalar && b->shift > 3))) {
        fit_cells(b, offset, bytes, is_scalar ? 3 : MOST_SHIFT);
    }
    if (now->lanes.iteration) touch_lane(b, offset, how, site);
    if (how == READ && (is_scalar || is_value) && bytes > 1 << b->shift) is_scalar = b->is_fresh && is_unset_value(b, offset, bytes);
    for (int64_t i = offset >> b->shift; i < (offset + bytes) >> b->shift; ++i)
        touch_cell(b, b->cells + i, i << b->shift, how, site, is_scalar);
    if (mode == GRID && b->launch != launches && b->kind != SHARED && b->kind != STACK) {
        b->launch = launches, b->launch_number = launch_now + 1;
        if (b->bytes >> b->shift > widest_cells) widest_cells = b->bytes >> b->shift;
    }
}

/* A stack as a block of memory. */
static block stack_block(char *start, int64_t bytes) {
    block made = {.start = start, .bytes = bytes, .kind = STACK, .shift = -1, .low = bytes};
    snprintf(made.name, sizeof made.name, "the stack");
    return made;
}

/* Forgets what lies below `top`, of calls that have ended: other variables come there. */
static void clear_stack(block *b, const char *top) {
    const int64_t end = top - b->start;
    if (!b->cells || b->low >= end) return;
    const int64_t first = b->low >> b->shift, last = end >> b->shift;
    __real_memset(b->cells + first, 0, (size_t)(last - first) * sizeof *b->cells);
    b->low = end;
}

/* The stack that contains an address. */
static block *stack_at(const char *at) {
    if (at >= fiber_stacks && at < fiber_stacks_end) return &pool[(at - fiber_stacks) / pool_stack_bytes].memory;
    return at >= main_stack.start && at < main_stack.start + main_stack.bytes ? &main_stack : 0;
}

/* Reports an access outside of every block, with the nearest block. */
static void touch_outside(const char *at, int64_t bytes, int how, int site) {
    block *low = among(blocks, block_count, at);
    block *high = low ? (low + 1 < blocks + block_count ? low + 1 : 0) : (block_count ? blocks : 0);
    block *near = low;
    if (!low || (high && high->start - at < at - (low->start + low->bytes))) near = high;
    if (!near) return;
    (void)bytes;
    found("out-of-bounds", how, site, near, at - near->start, 0, 0, "%s", near->is_freed ? "freed" : "");
}

enum { TURN = 1 << 14 }; /* accesses after which others get a turn, since a thread may wait for them */
static void yield_turn(void);

static void touch_watched(const char *at, int64_t bytes, int how, int site, int is_scalar) {
    block *stack;
    settle_pending(), settle_left_out();
    if (mode == THREADS && ++now->turn > TURN) yield_turn();
    accesses += 1, access_at = at, access_bytes = bytes;
    if (!(accesses & ((1 << 16) - 1))) require_memory(), end_if_full();
    if (at >= arena && at < arena_end) {
        block *b = block_around(at);
        if (!b || at + bytes > b->start + b->bytes || b->is_freed) {
            touch_outside(at, bytes, how, site);
            return;
        }
        if (mode == GRID && b->kind == HEAP && !b->is_mapped)
            found("crash", how, site, b, at - b->start, 0, 0, "%s", "the grid touches memory of the host");
        if (b->is_of_device && mode == SERIAL)
            found("crash", how, site, b, at - b->start, 0, 0, "%s", "the host touches memory of the device");
        touch_block(b, at - b->start, bytes, how, site, is_scalar);
    } else if ((mode == THREADS || now->lanes.iteration) && (stack = stack_at(at))) {
        if (at - stack->start < stack->low) stack->low = at - stack->start;
        touch_block(stack, at - stack->start, bytes, how, site, is_scalar);
    } else if (at >= data_start && at < data_end) {
        block *b = among(globals, global_count, at);
        if (!b || at >= b->start + b->bytes + b->gap) return;
        if (at + bytes > b->start + b->bytes) {
            found("out-of-bounds", how, site, b, at - b->start, 0, 0, "%s", "");
            return;
        }
        touch_block(b, at - b->start, bytes, how, site, is_scalar);
    } else if (at >= tls_block.start && at < tls_block.start + tls_block.bytes) {
        if (mode != GRID) return; /* each thread has its own */
        static int32_t met[PAGES_KEPT]; /* the array that was last found for these bytes */
        int32_t *last = met + ((uintptr_t)at >> 6) % PAGES_KEPT;
        block *b = *last < global_count ? globals + *last : 0;
        if (!b || at < b->start || at >= b->start + b->bytes) b = among(globals, global_count, at), *last = b ? (int32_t)(b - globals) : 0;
        if (!b || b->kind != SHARED || at + bytes > b->start + b->bytes) {
            if (b && b->kind == SHARED) found("out-of-bounds", how, site, b, at - b->start, 0, 0, "%s", "");
            return;
        }
        touch_block(b, at - b->start, bytes, how, site, is_scalar);
    }
}

static void touch_slowly(const char *at, int64_t bytes, int how, int site, int is_scalar) {
    place *const p = places + site;
    if ((is_tracking || (mode == GRID && how != READ)) && !is_in_place(p, at, how)) use_address(at, how, site);
    if (!is_left_out) {
        touch_watched(at, bytes, how, site, is_scalar);
    } else if (how != READ && at >= arena && at < arena_end) {
        const int is_known = is_in_place(p, at, how) && bytes <= p->widest;
        if (is_known && !p->has_marks) return;
        leave_out(at, bytes, is_known);
        if (bytes > p->widest) p->widest = bytes;
    }
}

static inline void touch(const void *at, int64_t bytes, int how, int site, int is_scalar) {
    last_site = site, has_accessed[site] = 1, now->touched = 1;
    if (is_left_out && how == READ && (!is_tracking || is_in_place(places + site, at, READ))) return;
    touch_slowly(at, bytes, how, site, is_scalar);
}

/* Called where the body of a construct begins: a variable that is private to it holds no value, unless an earlier
   iteration has had it. */
void noyau_private(void *at, size_t bytes) {
    block *stack = mode == THREADS && bytes ? stack_at(at) : 0;
    if (!stack) return;
    const int64_t offset = (char *)at - stack->start;
    if (!stack->cells) make_cells(stack, 3);
    while (stack->shift && (((int64_t)bytes | offset) & ((1 << stack->shift) - 1))) make_cells(stack, stack->shift - 1);
    cell *c = stack->cells + (offset >> stack->shift), *end = c + (bytes >> stack->shift);
    if (c->round) return;
    if (offset < stack->low) stack->low = offset;
    __real_memset(at, POISON, bytes);
    for (; c < end; ++c) c->round = IS_PRIVATE;
}

/* Ranges: the accesses of memcpy and similar functions. */
static void touch_range(const void *address, int64_t bytes, int how, int site) {
    const char *at = address;
    if (bytes <= 0) return;
    if (at >= arena && at < arena_end) {
        block *b = among(blocks, block_count, at);
        const int64_t left = b && at < b->start + b->bytes ? b->start + b->bytes - at : 0;
        if (left && left < bytes) {
            touch(at, left, how, site, 0);
            touch(b->start + b->bytes, 1, how, site, 0);
            return;
        }
    }
    touch(at, bytes, how, site, 0);
}

/* Reads a small value whole, such as a struct. */
static void copy_value(const void *at, int64_t bytes, int site) {
    is_value = bytes <= MOST_VALUE;
    touch_range(at, bytes, READ, site);
    is_value = 0;
}

static block *heap_block(int64_t bytes, int64_t align, int fresh, int site) {
    block *made = allocate(bytes, align, HEAP, fresh);
    if (made) {
        made->site = site;
        made->is_mapped = mode == GRID;
        snprintf(made->name, sizeof made->name, "the block of %lld bytes", (long long)bytes);
    }
    return made;
}

void *__wrap_malloc(size_t bytes) {
    block *made = heap_block((int64_t)bytes, 16, 1, HERE);
    return made ? made->start : 0;
}

void *__wrap_calloc(size_t count, size_t bytes) {
    if (bytes && count > (size_t)INT64_MAX / bytes) return 0;
    block *made = heap_block((int64_t)(count * bytes), 16, 0, HERE);
    return made ? made->start : 0;
}

static block *owned(void *at) {
    if ((char *)at < arena || (char *)at >= arena_end) return 0;
    block *b = among(blocks, block_count, at);
    return b && b->start == at ? b : 0;
}

static void release_block(void *at, int site) {
    if (!at) return;
    block *b = owned(at);
    if (!b && ((char *)at < arena || (char *)at >= arena_end)) return; /* memory of code that is not watched */
    if (!b || b->is_freed || b->kind == ARGUMENT) {
        b = b ? b : among(blocks, block_count, at);
        if (b) found("crash", WRITE, site, b, (char *)at - b->start, 0, 0, "%s", b->is_freed ? "freed twice" : "freed, and no start of a block");
        return;
    }
    if (mode == THREADS && b->bytes) touch(b->start, b->bytes, WRITE, site, 0); /* a race with its other users */
    b->is_freed = 1;
    if (b->bytes >= 1 << 20) { /* its contents and accesses are not needed any more */
        const uintptr_t first = ((uintptr_t)b->start + 4095) & ~(uintptr_t)4095;
        madvise((void *)first, (uintptr_t)(b->start + b->bytes - first) & ~(uintptr_t)4095, MADV_DONTNEED);
        if (b->cells) madvise(b->cells, ((size_t)(b->bytes >> b->shift) + 2) * sizeof *b->cells, MADV_DONTNEED);
    }
}

void __wrap_free(void *at) { release_block(at, HERE); }

/* Marks the first bytes of a new block, a copy of another, as that one's are: what was not written there is not here. */
static void copy_marks(block *made, const block *from, int64_t bytes) {
    made->fresh_from = !from->is_fresh || from->fresh_from > bytes ? bytes : from->fresh_from;
    made->widest = from->widest;
    if (!from->is_fresh || !from->cells) return;
    for (int64_t i = 0; i << from->shift < bytes; ++i) {
        if (!(from->cells[i].round & IS_SET)) continue;
        if (!made->cells) { /* needed for written bytes that look like unwritten memory */
            const int64_t left = bytes - (i << from->shift), unit = 1 << from->shift;
            if (!memchr(made->start + (i << from->shift), POISON, (size_t)(left < unit ? left : unit))) continue;
            make_cells(made, from->shift);
        }
        made->cells[i].round |= from->cells[i].round & FLAGS;
    }
}

void *__wrap_realloc(void *at, size_t bytes) {
    if (at && ((char *)at < arena || (char *)at >= arena_end)) return __real_realloc(at, bytes); /* as from strdup */
    const int site = HERE;
    block *made = heap_block((int64_t)bytes, 16, 1, site), *b = at ? among(blocks, block_count, at) : 0;
    if (!made || !at) return made ? made->start : 0;
    settle_pending(), settle_left_out();
    if (b && (char *)at < b->start + b->bytes) { /* also after a fault, so that the program goes on as it would */
        const int64_t left = b->start + b->bytes - (char *)at, kept = left < made->bytes ? left : made->bytes;
        __real_memcpy(made->start, at, (size_t)kept);
        if (b->start == at && !b->is_freed) copy_marks(made, b, kept);
        else made->fresh_from = kept;
    }
    void *const start = made->start;
    release_block(at, site);
    return start;
}

void *__wrap_aligned_alloc(size_t align, size_t bytes) {
    block *made = heap_block((int64_t)bytes, (int64_t)align, 1, HERE);
    return made ? made->start : 0;
}

int __wrap_posix_memalign(void **into, size_t align, size_t bytes) {
    block *made = heap_block((int64_t)bytes, (int64_t)align, 1, HERE);
    if (!made) return ENOMEM;
    *into = made->start;
    return 0;
}

/* C++: operator new and delete, by the names that the compiler gives them. */
void *_Znwm(size_t bytes) {
    block *made = heap_block((int64_t)bytes, 16, 1, HERE);
    return made ? made->start : 0;
}
void *_Znam(size_t bytes) {
    block *made = heap_block((int64_t)bytes, 16, 1, HERE);
    return made ? made->start : 0;
}
void *_ZnwmSt11align_val_t(size_t bytes, size_t align) { return __wrap_aligned_alloc(align, bytes); }
void *_ZnamSt11align_val_t(size_t bytes, size_t align) { return __wrap_aligned_alloc(align, bytes); }
void _ZdlPv(void *at) { release_block(at, HERE); }
void _ZdaPv(void *at) { release_block(at, HERE); }
void _ZdlPvm(void *at, size_t bytes) { (void)bytes, release_block(at, HERE); }
void _ZdaPvm(void *at, size_t bytes) { (void)bytes, release_block(at, HERE); }
void _ZdlPvSt11align_val_t(void *at, size_t align) { (void)align, release_block(at, HERE); }
void _ZdaPvSt11align_val_t(void *at, size_t align) { (void)align, release_block(at, HERE); }
void _ZdlPvmSt11align_val_t(void *at, size_t bytes, size_t align) { (void)bytes, (void)align, release_block(at, HERE); }
void _ZdaPvmSt11align_val_t(void *at, size_t bytes, size_t align) { (void)bytes, (void)align, release_block(at, HERE); }

void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
    const int site = HERE;
    copy_value(from, (int64_t)bytes, site);
    touch_range(to, (int64_t)bytes, WRITE, site);
    return __real_memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, size_t bytes) {
    const int site = HERE;
    touch_range(from, (int64_t)bytes, READ, site);
    touch_range(to, (int64_t)bytes, WRITE, site);
    return __real_memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int value, size_t bytes) {
    filled_with = (unsigned char)value;
    touch_range(to, (int64_t)bytes, WRITE, HERE);
    filled_with = -1;
    return __real_memset(to, value, bytes);
}
