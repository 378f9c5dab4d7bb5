/* A grid of CUDA: blocks one after the other, the threads of a block from barrier to barrier. */

typedef struct {
    unsigned x, y, z;
} triple;

enum { MOST_IN_BLOCK = 1024, MOST_SHARED = 227 * 1024, MOST_SHARED_PLAIN = 48 * 1024 };
enum { SYNC_WARP, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, MATCH };
enum { SYNC, SYNC_COUNT, SYNC_AND, SYNC_OR };

static triple grid_shape, block_shape, block_place, thread_places[MOST_IN_BLOCK];
static block *dynamic_shared; /* within the arena, made anew where a launch wants more */
static int any_fence;
static int64_t launched, idle; /* threads, and those of them that touched nothing */

/* Launches that are alike: from one place, of one shape. `idle`: of the one that wasted least. */
enum { MOST_LAUNCHES = 256 };
typedef struct {
    int32_t site;
    triple grid, block;
    int64_t idle, cells;
} launch;
static launch launch_table[MOST_LAUNCHES];
static int launch_count;
static triple given_grid, given_block;
static int64_t given_shared;

triple noyau_thread_index(void) { return mode == GRID ? thread_places[now->number] : (triple){0, 0, 0}; }
triple noyau_block_index(void) { return block_place; }
triple noyau_block_shape(void) { return block_shape; }
triple noyau_grid_shape(void) { return grid_shape; }
triple noyau_given_grid(void) { return given_grid; }
triple noyau_given_block(void) { return given_block; }
int64_t noyau_given_shared(void) { return given_shared; }
void *noyau_dynamic_shared(void) { return dynamic_shared ? dynamic_shared->start : 0; }
int noyau_lane(void) { return now->number % WARP; }
int noyau_in_grid(void) { return mode == GRID; }

static void tell_wait(const char *kind, const fiber *waits, const fiber *other, int site, const char *words) {
    fiber *was = now;
    now = (fiber *)waits;
    const visit who = {grid_block * grid_threads + (uint32_t)other->number + 1, 0, (uint16_t)site, 0};
    found(kind, READ, waits->site, 0, 0, &who, READ, "%s", words);
    now = was;
}

/* Barriers of the block. `site` is the place of the call. */
int noyau_sync(int how, int value, const void *pc) {
    if (mode != GRID) return 0;
    now->site = site_of(pc), now->operation = how, now->value = (uint64_t)(value != 0);
    give_way(WAITS_BARRIER);
    return (int)now->answer;
}

static void pass_barrier(int count) {
    int first = -1, gone = -1, sum = 0, waiting = 0;
    for (int i = 0; i < count; ++i) {
        fiber *f = fibers + i;
        if (f->state == ENDED) gone = i;
        if (f->state != WAITS_BARRIER) continue;
        if (first < 0) first = i;
        else if (f->site != fibers[first].site) tell_wait("divergent-barrier", f, fibers + first, fibers[first].site, "");
        sum += (int)f->value, ++waiting;
    }
    if (gone >= 0) tell_wait("divergent-barrier", fibers + first, fibers + gone, fibers[gone].exit_site, "ended");
    for (int i = 0; i < count; ++i) {
        fiber *f = fibers + i;
        if (f->state != WAITS_BARRIER) continue;
        f->answer = (uint64_t)(f->operation == SYNC_AND ? sum == waiting : f->operation == SYNC_OR ? sum > 0 : sum);
        f->state = RUNS;
        f->time = ((f->time >> 12) + 1) << 12;
    }
}

/* Warps. Who waits names the lanes it waits for. */
uint64_t noyau_warp(int operation, unsigned mask, uint64_t value, int lane, int width, const void *pc) {
    if (mode != GRID) return value;
    now->site = site_of(pc), now->mask = mask, now->operation = operation;
    now->value = value, now->lane = lane, now->extra = width;
    if (!(mask >> (now->number % WARP) & 1)) tell_wait("divergent-barrier", now, now, now->site, "mask");
    give_way(WAITS_WARP);
    return now->answer;
}

unsigned noyau_active(const void *pc) {
    if (mode != GRID) return 1;
    now->site = site_of(pc);
    give_way(WAITS_ACTIVE);
    return (unsigned)now->answer;
}

static int source_of(const fiber *f, int lane) {
    const int width = f->extra > 0 && f->extra <= WARP ? f->extra : WARP, low = lane & ~(width - 1);
    int from = lane;
    if (f->operation == SHUFFLE) from = low + (f->lane & (width - 1));
    if (f->operation == SHUFFLE_UP) from = lane - f->lane < low ? lane : lane - f->lane;
    if (f->operation == SHUFFLE_DOWN) from = lane + f->lane >= low + width ? lane : lane + f->lane;
    if (f->operation == SHUFFLE_XOR) from = (lane ^ f->lane) >= low + width ? lane : lane ^ f->lane;
    return from;
}

/* Let the lanes of `who` go on; each is given what it asked for of them. */
static void answer_warp(fiber *first, int lanes, unsigned who, unsigned asked) {
    uint64_t ballot = 0;
    for (int i = 0; i < lanes; ++i)
        if (who >> i & 1 && first[i].value) ballot |= 1u << i;
    for (int i = 0; i < lanes; ++i) {
        fiber *f = first + i;
        if (!(who >> i & 1)) continue;
        if (f->operation == BALLOT) f->answer = ballot;
        if (f->operation == MATCH) {
            f->answer = 0;
            for (int k = 0; k < lanes; ++k)
                if (who >> k & 1 && first[k].value == f->value) f->answer |= 1u << k;
        }
        if (f->operation >= SHUFFLE && f->operation <= SHUFFLE_XOR) {
            const int from = source_of(f, i);
            const int there = from < lanes && who >> from & 1;
            f->answer = there ? first[from].value : f->value;
            if (!there) {
                const fiber *other = from < lanes ? first + from : f;
                tell_wait("divergent-barrier", f, other, other->state == ENDED ? other->exit_site : other->site,
                          from >= lanes ? "no lane" : other->state == ENDED ? "lane ended" : "lane");
            }
        }
    }
    (void)asked;
    for (int i = 0; i < lanes; ++i) {
        if (!(who >> i & 1)) continue;
        if (first[i].operation == SYNC_WARP) first[i].time += (first[i].time & 0xFFF) < 0xFFF;
        first[i].state = RUNS;
    }
}

/* Whether some lanes of a warp went on. `stuck`: nobody else can run, so who is missing will not come. */
static int resolve_warp(fiber *first, int lanes, int stuck) {
    for (int i = 0; i < lanes; ++i) {
        fiber *f = first + i;
        if (f->state != WAITS_WARP) continue;
        unsigned who = 0, missing = 0;
        for (int k = 0; k < lanes; ++k) {
            if (!(f->mask >> k & 1) || first[k].state == ENDED) continue;
            if (first[k].state == WAITS_WARP && first[k].operation == f->operation && first[k].mask == f->mask)
                who |= 1u << k;
            else missing |= 1u << k;
        }
        who |= 1u << i;
        missing &= ~(1u << i);
        if (missing && !stuck) continue;
        if (missing) {
            const fiber *other = first + __builtin_ctz(missing);
            tell_wait("divergent-barrier", f, other, other->site, "warp");
        }
        answer_warp(first, lanes, who, f->mask);
        return 1;
    }
    unsigned active = 0;
    int site = 0, busy = 0;
    for (int i = 0; i < lanes; ++i) {
        busy |= first[i].state == RUNS;
        if (first[i].state != WAITS_ACTIVE || (site && first[i].site != site)) continue;
        site = first[i].site, active |= 1u << i;
    }
    if (!active || busy) return 0;
    for (int i = 0; i < lanes; ++i)
        if (active >> i & 1) first[i].answer = active, first[i].state = RUNS;
    return 1;
}

static void run_block(int count) {
    for (;;) {
        int running = 0, waiting = 0, ended = 0, moved = 0;
        for (int i = 0; i < count; ++i)
            if (fibers[i].state == RUNS) switch_to(fibers + i);
        for (int i = 0; i < count; i += WARP) {
            const int lanes = count - i < WARP ? count - i : WARP;
            while (resolve_warp(fibers + i, lanes, 0)) moved = 1;
        }
        if (moved) continue;
        for (int i = 0; i < count; ++i) {
            running += fibers[i].state == RUNS, ended += fibers[i].state == ENDED;
            waiting += fibers[i].state == WAITS_BARRIER;
        }
        if (ended == count) return;
        if (running) continue;
        for (int i = 0; i < count && waiting + ended < count && !moved; i += WARP)
            moved = resolve_warp(fibers + i, count - i < WARP ? count - i : WARP, 1);
        if (!moved && waiting) pass_barrier(count);
    }
}

static void open_shared(int64_t bytes) {
    if (!dynamic_shared || dynamic_shared->bytes != bytes) {
        dynamic_shared = allocate(bytes, 128, SHARED, 1);
        if (!dynamic_shared) fatal("no memory");
        dynamic_shared->unit = 0;
        snprintf(dynamic_shared->name, sizeof dynamic_shared->name, "dynamic shared memory");
    }
}

static void begin_block(uint32_t number) {
    grid_block = number;
    block_place = (triple){number % grid_shape.x, number / grid_shape.x % grid_shape.y,
                           number / grid_shape.x / grid_shape.y};
    shared_round += 1 << 2;
    if (tls_block.bytes) __real_memset(tls_block.start, 0xCB, (size_t)tls_block.bytes);
    if (dynamic_shared) __real_memset(dynamic_shared->start, 0xCB, (size_t)dynamic_shared->bytes);
    if (any_fence) __real_memset(learnt, 0, learnt_count * sizeof *learnt);
}

enum { INVALID_VALUE = 1, INVALID_CONFIGURATION = 9 }; /* as CUDA numbers them */
static int last_error;

static int is_launchable(triple grid, triple shape, int64_t shared, int site) {
    const int64_t threads = (int64_t)shape.x * shape.y * shape.z;
    const char *why = 0;
    if (!threads) why = "a block has no threads";
    else if (threads > MOST_IN_BLOCK) why = "a block has more than 1024 threads";
    else if (shape.z > 64) why = "a block has more than 64 threads along z";
    else if (grid.y > 65535 || grid.z > 65535) why = "the grid has more than 65535 blocks along y or z";
    else if (shared > MOST_SHARED) why = "a block asks for more than 227 KiB of shared memory";
    else if ((int64_t)grid.x * grid.y * grid.z * threads > UINT32_MAX - 1) why = "the grid has too many threads to watch";
    if (why) found("launch", READ, site, 0, 0, 0, READ, "%s", why);
    if (why) last_error = shared > MOST_SHARED ? INVALID_VALUE : INVALID_CONFIGURATION;
    return !why;
}

/* What a refused launch leaves behind, until it is asked for. */
int noyau_last_error(int is_taken) {
    const int error = last_error;
    if (is_taken) last_error = 0;
    return error;
}

static int is_same(triple a, triple b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

static void keep_launch(int site, int64_t idle_here) {
    for (int i = 0; i < launch_count; ++i) {
        launch *l = launch_table + i;
        if (l->site != site || !is_same(l->grid, grid_shape) || !is_same(l->block, block_shape)) continue;
        if (idle_here < l->idle) l->idle = idle_here;
        if (widest_cells > l->cells) l->cells = widest_cells;
        return;
    }
    if (launch_count < MOST_LAUNCHES)
        launch_table[launch_count++] = (launch){site, grid_shape, block_shape, idle_here, widest_cells};
}

void noyau_run_grid(triple grid, triple shape, int64_t shared, void (*run)(void *), void *argument, const void *pc) {
    if (mode == GRID) fatal("a launch from within a grid is not supported");
    if (is_program && given_grid.x) grid = given_grid, shape = given_block; /* another launch is tried */
    if (!is_launchable(grid, shape, shared, site_of(pc))) return;
    if (!grid.x || !grid.y || !grid.z) { /* refused by a driver, too; what is not written is found */
        last_error = INVALID_CONFIGURATION;
        return;
    }
    const int threads = (int)(shape.x * shape.y * shape.z), before = mode;
    const uint32_t blocks_in_grid = grid.x * grid.y * grid.z;
    grid_shape = grid, block_shape = shape, grid_threads = (uint32_t)threads, learnt_count = 0, any_fence = 0;
    begin_region(pc, (const uint32_t[]){grid.x, grid.y, grid.z, shape.x, shape.y, shape.z});
    launches += 1, launched += (int64_t)threads * blocks_in_grid, widest_cells = 0;
    const int64_t idle_before = idle;
    open_shared(shared);
    now_round += 1 << 2;
    fiber *was = scheduler, *caller = now;
    char *kept = __real_malloc((size_t)tls_block.bytes + 1);
    if (kept) __real_memcpy(kept, tls_block.start, (size_t)tls_block.bytes);
    scheduler = caller, mode = GRID;
    for (int i = 0; i < threads; ++i)
        thread_places[i] = (triple){(unsigned)i % shape.x, (unsigned)i / shape.x % shape.y, (unsigned)i / shape.x / shape.y};
    for (uint32_t b = 0; b < blocks_in_grid; ++b) {
        begin_block(b);
        for (int i = 0; i < threads; ++i) make_fiber(i, run, argument);
        run_block(threads);
        for (int i = 0; i < threads; ++i) idle += !fibers[i].touched;
    }
    keep_launch(site_of(pc), idle - idle_before);
    settle_pending();
    scheduler = was, mode = before;
    if (kept) __real_memcpy(tls_block.start, kept, (size_t)tls_block.bytes), __real_free(kept);
    now_round += 1 << 2;
    block_place = (triple){0, 0, 0};
}

/* Fences: what a block did before one, and before an atomic, is seen by who finds that atomic later. */
void noyau_fence(void) {
    if (mode != GRID) return;
    now->fenced = 1;
    if (any_fence) return;
    any_fence = 1, learnt_count = grid_shape.x * grid_shape.y * grid_shape.z;
    __real_free(learnt);
    learnt = __real_malloc(learnt_count * sizeof *learnt);
    if (!learnt) fatal("no memory");
    __real_memset(learnt, 0, learnt_count * sizeof *learnt);
}

void noyau_atomic(void *at, int bytes, const void *pc) {
    touch(at, bytes, ATOMIC, site_of(pc), 1);
    if (mode != GRID || !any_fence) return;
    meeting *m = meeting_at(at);
    const uint32_t cells = learnt_count * 2; /* of each block the owner and its time, for this launch */
    if (m->generation != launches) m->generation = launches, forget(&m->seen);
    widen(&m->seen, cells);
    for (uint32_t i = 0; i < learnt_count; ++i)
        if (m->seen.at[2 * i] && m->seen.at[2 * i + 1] >= learnt[i].time)
            learnt[i] = (release){m->seen.at[2 * i], m->seen.at[2 * i + 1]};
    if (now->fenced) {
        m->seen.at[2 * grid_block] = grid_block * grid_threads + (uint32_t)now->number + 1;
        m->seen.at[2 * grid_block + 1] = now->time;
    }
}

/* The memory of the device. */
void *noyau_device_memory(int64_t bytes, int unified, const void *pc) {
    block *made = allocate(bytes, 256, unified ? HEAP : DEVICE, 1);
    if (!made) return 0;
    made->site = site_of(pc);
    snprintf(made->name, sizeof made->name, "the %lld bytes of device memory", (long long)bytes);
    return made->start;
}
void noyau_device_free(void *at, const void *pc) { release_block(at, site_of(pc)); }

/* Memory of the device may be touched by copies, whoever asks for them. */
static int8_t open_device(const void *at) {
    block *b = (char *)at >= arena && (char *)at < arena_end ? among(blocks, block_count, at) : 0;
    if (!b || b->kind != DEVICE) return 0;
    b->kind = HEAP;
    return 1;
}
static void close_device(const void *at, int8_t was_open) {
    if (was_open) among(blocks, block_count, at)->kind = DEVICE;
}
void noyau_device_copy(void *to, const void *from, int64_t bytes, const void *pc) {
    const int site = site_of(pc);
    const int8_t a = open_device(to), b = open_device(from);
    touch_range(from, bytes, READ, site);
    touch_range(to, bytes, WRITE, site);
    __real_memcpy(to, from, (size_t)bytes);
    close_device(to, a), close_device(from, b);
}
void noyau_device_set(void *to, int value, int64_t bytes, const void *pc) {
    const int8_t a = open_device(to);
    touch_range(to, bytes, WRITE, site_of(pc));
    __real_memset(to, value, (size_t)bytes);
    close_device(to, a);
}
