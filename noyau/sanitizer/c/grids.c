/* A CUDA grid: its blocks run one after the other, unless one waits for others; it keeps its state meanwhile. */

/* Launches that are alike: of one place and one shape. `idle`: of the launch that wasted least. */
enum { MOST_LAUNCHES = 256 };
typedef struct {
    int32_t site, count;
    triple grid, block;
    int64_t idle, cells, accesses, blocks, watched;
    uint64_t digest;
} launch;
static launch launch_table[MOST_LAUNCHES];
static int launch_count, launch_site;
static uint32_t blocks_ended; /* of the running launch */
static int64_t idle_before, accesses_before;

/* The sample of a launch that makes more accesses than are watched: half of them are for the first blocks; the rest is
   spread over the remaining grid, at random with a fixed seed; blocks at its corners are always watched. All blocks
   run, since later work needs their results, and their synchronization is always recorded. */
enum { BORDER = 2, MORE = 4 };
static int64_t watched_of_all, watched_of_launch, most_watched; /* accesses of grids: of the run, a launch, this one */
static int64_t watched_before;                                  /* by earlier launches; the host's do not count */
static uint32_t blocks_begun, blocks_watched;
static uint64_t chance;
static int is_full; /* nothing more of this launch is watched */

/* A block that has begun and has not ended. While another one runs, its shared memory is kept here. */
typedef struct {
    uint32_t number, epoch, round;
    int state, is_left_out;
    fiber *threads;
    char *shared; /* its thread_local memory, and behind it its dynamic shared memory */
    release *learnt;
} resident;
static resident residents[MOST_FIBERS];
static resident *active; /* the block whose shared memory is in place */
static uint32_t last_shared_round = 1 << 2;

enum { INVALID_VALUE = 1, INVALID_CONFIGURATION = 9, ASSERTION_FAILED = 710, TOO_LARGE_TO_COOPERATE = 720 };
static int last_error; /* in CUDA's numbers */

/* The error of a refused launch, until it is read. */
int noyau_last_error(int is_taken) {
    const int error = last_error;
    if (is_taken && error != ASSERTION_FAILED) last_error = 0;
    return error;
}

static int is_launchable(triple grid, triple shape, int64_t shared, int site) {
    const int64_t threads = (int64_t)shape.x * shape.y * shape.z, in_all = (int64_t)grid.x * grid.y * grid.z * threads;
    const char *why = 0;
    if (!threads) why = "a block has no threads";
    else if (threads > MOST_IN_BLOCK) why = "a block has more than 1024 threads";
    else if (shape.z > 64) why = "a block has more than 64 threads along z";
    else if (grid.y > 65535 || grid.z > 65535) why = "the grid has more than 65535 blocks along y or z";
    else if (shared > MOST_SHARED) why = "a block asks for more than 227 KiB of shared memory";
    else if (in_all > UINT32_MAX - 1) why = "the grid has too many threads to watch";
    if (why) found("launch", READ, site, 0, 0, 0, READ, "%s", why);
    if (why) last_error = shared > MOST_SHARED ? INVALID_VALUE : INVALID_CONFIGURATION;
    else if (is_cooperative && in_all > MOST_FIBERS) last_error = TOO_LARGE_TO_COOPERATE;
    else if (!in_all) last_error = INVALID_CONFIGURATION; /* a driver refuses it too; missing writes are findings */
    else return 1;
    return 0;
}

static int is_same(triple a, triple b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

/* The number of the launches like this one; -1 if there are too many others. */
static int number_of_launch(int site) {
    for (int i = 0; i < launch_count; ++i) {
        launch *l = launch_table + i;
        if (l->site == site && is_same(l->grid, grid_shape) && is_same(l->block, block_shape)) return i;
    }
    if (launch_count == MOST_LAUNCHES) return -1;
    launch_table[launch_count] = (launch){site, 0, grid_shape, block_shape, INT64_MAX, 0, 0, 0, 0, 0};
    return launch_count++;
}

static uint64_t hash_of(const block *);
/* The contents of the memories that the running launch wrote. */
static void digest_left(void) {
    for (int64_t i = 0; shared_fill != POISON && i < block_count + global_count; ++i) {
        const block *b = i < block_count ? blocks + i : globals + (i - block_count);
        if (b->version == (uint32_t)launches && b->kind != SHARED && !b->is_freed) digest_word(hash_of(b));
    }
}

/* Adds the running launch, or the last one, to the entry of launches like it. */
static void count_launch(void) {
    if (launch_now < 0) return;
    launch *l = launch_table + launch_now;
    digest_left(), digest_word(l->digest), l->digest = digest, digest = 0;
    l->accesses += accesses - accesses_before, l->blocks += blocks_begun, l->watched += blocks_watched;
    if (idle - idle_before < l->idle) l->idle = idle - idle_before;
    if (widest_cells > l->cells) l->cells = widest_cells;
    launch_now = -1;
}

/* How much of a launch is watched; of launches that are alike the later ones have less. */
static void open_sample(void) {
    const int64_t left = watched_of_all - watched_before;
    most_watched = launch_now < 0 ? watched_of_launch : watched_of_launch - launch_table[launch_now].accesses / 2;
    if (left < most_watched) most_watched = left;
    blocks_begun = blocks_watched = 0, chance = (uint64_t)launches, is_full = most_watched <= 0;
}

static int is_border(unsigned at, unsigned extent) { return at < BORDER || extent - 1 - at < BORDER; }

/* Whether the block that begins at `block_place` is watched. */
static int is_chosen(void) {
    const int64_t seen = accesses - accesses_before, room = most_watched - seen;
    const double left = (double)grid_shape.x * grid_shape.y * grid_shape.z - blocks_begun++;
    const double wanted = (double)seen / (blocks_watched ? blocks_watched : 1) * left;
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    if (is_full) return 0;
    if (room >= most_watched / 2 || (double)room >= wanted || (double)(chance >> 33) / (1u << 31) * wanted < (double)room) return 1;
    return seen <= MORE * most_watched && is_border(block_place.x, grid_shape.x) && is_border(block_place.y, grid_shape.y) &&
           is_border(block_place.z, grid_shape.z);
}

/* Stops watching when a single block makes more accesses than are watched. */
static void end_if_full(void) {
    if (mode != GRID || is_full || accesses - accesses_before <= MORE * most_watched) return;
    is_full = is_left_out = 1;
    if (blocks_watched > blocks_ended) blocks_watched = blocks_ended;
}

static void open_shared(int64_t bytes) {
    if (!dynamic_shared || dynamic_shared->bytes != bytes) {
        dynamic_shared = allocate(bytes, 128, SHARED, 1);
        if (!dynamic_shared) fatal("no memory");
        dynamic_shared->unit = 0;
        snprintf(dynamic_shared->name, sizeof dynamic_shared->name, "%s", dynamic_name);
        dynamic_start = dynamic_shared->start;
    }
}

/* Saves the shared memory of the active block, and puts that of another in its place. */
static void activate(resident *r) {
    const size_t own = (size_t)tls_block.bytes, asked = (size_t)dynamic_shared->bytes;
    if (active == r) return;
    if (active && active->state != ENDED) {
        if (!active->shared) active->shared = __real_malloc(own + asked + 1);
        if (!active->shared) fatal("no memory");
        __real_memcpy(active->shared, tls_block.start, own);
        __real_memcpy(active->shared + own, dynamic_shared->start, asked);
    }
    if (active) active->epoch = block_epoch, active->learnt = learnt;
    active = r, grid_block = r->number, block_epoch = r->epoch, shared_round = r->round, learnt = r->learnt;
    block_place = (triple){grid_block % grid_shape.x, grid_block / grid_shape.x % grid_shape.y,
                           grid_block / grid_shape.x / grid_shape.y};
    if (r->state != NEVER && r->shared) {
        __real_memcpy(tls_block.start, r->shared, own);
        __real_memcpy(dynamic_shared->start, r->shared + own, asked);
    }
    if (any_fence && (!learnt || r->state == NEVER)) open_learnt();
    is_left_out = r->is_left_out || is_full;
}

static void begin_block(resident *r, uint32_t number, int threads, void (*run)(void *), void *argument) {
    const int first = (int)(r - residents) * threads;
    r->number = number, r->epoch = 0, r->state = NEVER, r->round = last_shared_round += 1 << 2;
    activate(r);
    r->is_left_out = is_left_out = !is_chosen(), blocks_watched += !is_left_out;
    shared_round = r->round, block_epoch = 0;
    if (tls_block.bytes) __real_memset(tls_block.start, shared_fill, (size_t)tls_block.bytes);
    __real_memset(dynamic_shared->start, shared_fill, (size_t)dynamic_shared->bytes);
    for (int i = 0; i < threads; ++i) make_thread(first + i, i, run, argument);
    r->threads = fibers + first, r->state = RUNS;
}

/* Passes the barrier of all blocks: accesses before it precede those after it. */
static void pass_grid(int count, int threads) {
    for (int i = 0; i < count; ++i) {
        if (residents[i].state != WAITS_GRID) continue;
        activate(residents + i);
        pass_barrier(residents[i].threads, threads, WAITS_GRID);
        residents[i].state = RUNS, residents[i].round = shared_round = last_shared_round += 1 << 2;
        if (any_fence) open_learnt();
    }
    now_round += 1 << 2;
}

/* Run all blocks. As many as there are stacks for can wait for one another. */
static void run_blocks(uint32_t blocks_in_grid, int threads, void (*run)(void *), void *argument) {
    const int room = MOST_FIBERS / threads;
    int count = 0, waiting = 0, left = 0;
    uint32_t next = 0;
    for (int i = 0; i < room; ++i) residents[i].state = ENDED;
    active = 0;
    while (!is_grid_over && (next < blocks_in_grid || left)) {
        const int can_begin = next < blocks_in_grid && left < room;
        if (left && waiting == left && !can_begin) {
            if (next < blocks_in_grid) fatal("more blocks wait for one another than can be watched together");
            pass_grid(count, threads), waiting = 0;
        }
        int begun = 0;
        for (int i = 0; i < room && !is_grid_over; ++i) { /* waiting blocks first, then one more */
            resident *r = residents + i;
            if (i >= count && !begun && !can_begin) break;
            if (r->state == WAITS_GRID || (r->state == ENDED && (begun || !can_begin))) continue;
            if (r->state == ENDED) begin_block(r, next++, threads, run, argument), begun = 1, left += 1;
            if (i >= count) count = i + 1;
            activate(r);
            r->state = run_block(r->threads, threads);
            waiting += r->state == WAITS_GRID, left -= r->state == ENDED, blocks_ended += r->state == ENDED;
            for (int k = 0; k < threads && r->state == ENDED; ++k) idle += !r->threads[k].touched;
            if (r->state == ENDED) r->learnt = learnt, active = 0;
            if (begun) break;
        }
    }
    if (active) active->learnt = learnt;
    for (int i = 0; i < count; ++i) {
        __real_free(residents[i].shared), __real_free(residents[i].learnt);
        residents[i].shared = 0, residents[i].learnt = 0;
    }
    learnt = 0;
}

static int begin_tracking(int64_t shared, const void *argument, int64_t bytes);
static void keep_launch(void);

void noyau_run_grid(triple grid, triple shape, int64_t shared, int cooperates, void (*run)(void *), void *argument,
                    int64_t bytes, const void *pc) {
    if (mode == GRID) refuse("a launch from within a grid cannot be watched", site_of(pc));
    if (is_program && given_grid.x) grid = given_grid, shape = given_block; /* the user tries another launch */
    is_cooperative = cooperates;
    if (!is_launchable(grid, shape, shared, site_of(pc))) return;
    const int threads = (int)(shape.x * shape.y * shape.z), before = mode;
    const uint32_t blocks_in_grid = grid.x * grid.y * grid.z;
    grid_shape = grid, block_shape = shape, grid_threads = (uint32_t)threads;
    learnt = 0, learnt_count = 0, any_fence = 0, is_grid_over = 0;
    begin_region(pc, (const uint32_t[]){grid.x, grid.y, grid.z, shape.x, shape.y, shape.z});
    launches += 1, launched += (int64_t)threads * blocks_in_grid, widest_cells = 0;
    launch_site = site_of(pc), launch_now = number_of_launch(launch_site);
    idle_before = idle, accesses_before = accesses, blocks_ended = 0;
    if (launch_now >= 0) launch_table[launch_now].count += 1;
    if (begin_tracking(shared, argument, bytes)) {
        launch_now = -1, now_round += 1 << 2;
        return;
    }
    open_sample();
    open_shared(shared);
    now_round += 1 << 2;
    fiber *was = scheduler, *caller = now;
    char *kept = __real_malloc((size_t)tls_block.bytes + 1);
    if (kept) __real_memcpy(kept, tls_block.start, (size_t)tls_block.bytes);
    scheduler = caller, mode = GRID;
    for (int i = 0; i < threads; ++i)
        thread_places[i] = (triple){(unsigned)i % shape.x, (unsigned)i / shape.x % shape.y, (unsigned)i / shape.x / shape.y};
    const uint32_t first_round = now_round;
    run_blocks(blocks_in_grid, threads, run, argument);
    settle_pending();
    keep_launch();
    watched_before += accesses - accesses_before;
    count_launch();
    is_left_out = 0;
    scheduler = was, mode = before;
    if (kept) __real_memcpy(tls_block.start, kept, (size_t)tls_block.bytes), __real_free(kept);
    await_grid(first_round, now_round);
    now_round += 1 << 2;
    block_place = (triple){0, 0, 0};
}

/* A failing assertion of a kernel ends its grid; one of the host ends the process, as usual. */
void __assert_fail(const char *text, const char *file, unsigned line, const char *function) {
    if (mode != GRID) {
        fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, text);
        abort();
    }
    const triple t = thread_places[now->number], b = block_place;
    fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file, line, function, b.x,
            b.y, b.z, t.x, t.y, t.z, text);
    found("crash", READ, HERE, 0, 0, 0, READ, "the assertion %s fails", text);
    last_error = ASSERTION_FAILED, is_grid_over = 1;
    for (;;) give_way(ENDED);
}
