/* What threads of a CUDA grid wait for: barriers, warps, fences. Each runs from one wait to the next. */

typedef struct {
    unsigned x, y, z;
} triple;

enum { MOST_IN_BLOCK = 1024, MOST_SHARED = 227 * 1024, MOST_SHARED_PLAIN = 48 * 1024 };
enum { SYNC_WARP, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, MATCH, GATHER };
enum { SYNC, SYNC_COUNT, SYNC_AND, SYNC_OR };

static triple grid_shape, block_shape, block_place, thread_places[MOST_IN_BLOCK];
static block *dynamic_shared; /* in the arena, allocated again for another size */
static uint32_t block_epoch;  /* grows with each barrier that some threads of the block pass */
static int any_fence, is_cooperative, is_grid_over;
static int64_t launched, idle; /* threads, and how many of them touched nothing */
static triple given_grid, given_block;
static int64_t given_shared;

triple noyau_thread_index(void) { return mode == GRID ? thread_places[now->number] : (triple){0, 0, 0}; }
triple noyau_block_index(void) { return block_place; }
triple noyau_block_shape(void) { return block_shape; }
triple noyau_grid_shape(void) { return grid_shape; }
triple noyau_given_grid(void) { return given_grid; }
triple noyau_given_block(void) { return given_block; }
int64_t noyau_given_shared(void) { return given_shared; }
static void *dynamic_start; /* for declarations outside of functions */
static const char *dynamic_name = "dynamic shared memory"; /* its name in the text */
void *noyau_dynamic_shared(const char *name) {
    if (dynamic_shared && dynamic_name != name) snprintf(dynamic_shared->name, sizeof dynamic_shared->name, "%s", name);
    dynamic_name = name;
    return dynamic_shared ? dynamic_shared->start : 0;
}
void *const *noyau_dynamic_place(const char *name) {
    dynamic_name = name;
    return &dynamic_start;
}
int noyau_lane(void) { return now->number % WARP; }
int noyau_in_grid(void) { return mode == GRID; }

static void tell_wait(const char *kind, const fiber *waits, const fiber *other, int site, const char *words) {
    fiber *was = now;
    now = (fiber *)waits;
    const visit who = {grid_block * grid_threads + (uint32_t)other->number + 1, 0, (uint16_t)site, 0};
    found(kind, READ, waits->site, 0, 0, &who, READ, "%s", words);
    now = was;
}

/* Barriers of the block. `pc` is the place of the call. */
int noyau_sync(int how, int value, const void *pc) {
    if (mode != GRID) return 0;
    now->site = site_of(pc), now->operation = how, now->value = (uint64_t)(value != 0);
    give_way(WAITS_BARRIER);
    return (int)now->answer;
}

/* Releases the threads that wait in `state`, at a barrier that all of them are to reach. */
static void pass_barrier(fiber *threads, int count, int state) {
    int sum = 0, waiting = 0;
    const fiber *first = 0, *gone = 0;
    for (int i = 0; i < count; ++i) {
        fiber *f = threads + i;
        if (f->state == ENDED) gone = f;
        if (f->state != state) continue;
        if (!first) first = f;
        else if (f->site != first->site) tell_wait("divergent-barrier", f, first, first->site, "");
        sum += (int)f->value, ++waiting;
    }
    if (gone) tell_wait("divergent-barrier", first, gone, gone->exit_site, "ended");
    block_epoch += 1;
    for (int i = 0; i < count; ++i) {
        fiber *f = threads + i;
        if (f->state != state) continue;
        f->answer = (uint64_t)(f->operation == SYNC_AND ? sum == waiting : f->operation == SYNC_OR ? sum > 0 : sum);
        f->state = RUNS;
        f->time = block_epoch << 12;
    }
}

/* A barrier of the whole grid: the blocks wait for one another, and keep their state (grids.c). */
void noyau_sync_grid(const void *pc) {
    if (mode != GRID) return;
    now->site = site_of(pc), now->operation = SYNC, now->value = 0;
    if (!is_cooperative) found("launch", READ, now->site, 0, 0, 0, READ, "a grid that waits as one needs a cooperative launch");
    give_way(WAITS_GRID);
}

/* A barrier of the blocks of a cluster: like one of the grid, since other clusters do not notice. */
void noyau_sync_cluster(const void *pc) {
    if (mode != GRID) return;
    now->site = site_of(pc), now->operation = SYNC, now->value = 0;
    give_way(WAITS_GRID);
}

/* Barriers in memory, at which threads arrive and wait: a phase is over once all expected ones have arrived. */
typedef struct {
    uint64_t phase : 24, expected : 20, pending : 20;
} phase_barrier;

void noyau_phase_open(phase_barrier *b, unsigned expected) { *b = (phase_barrier){.expected = expected, .pending = expected}; }

uint64_t noyau_phase_arrive(phase_barrier *b, unsigned many, unsigned leave) {
    const uint64_t phase = b->phase;
    b->expected -= leave;
    b->pending -= many < b->pending ? many : b->pending;
    if (!b->pending) b->phase += 1, b->pending = b->expected, block_epoch += 1;
    return phase;
}

static void end_phase(const phase_barrier *);

int noyau_phase_is_over(const phase_barrier *b, uint64_t phase) {
    if (b->phase == phase) return 0;
    end_phase(b);
    if (mode == GRID && now->time >> 12 < block_epoch) now->time = block_epoch << 12;
    return 1;
}

void noyau_phase_wait(const phase_barrier *b, uint64_t phase, const void *pc) {
    if (mode != GRID) return;
    now->site = site_of(pc), now->value = (uintptr_t)b, now->answer = phase;
    while (!noyau_phase_is_over(b, phase)) give_way(WAITS_PHASE);
}

/* Whether some thread that waits for a phase can continue. `stuck`: no other can run, so the missing will not come. */
static int resolve_phases(fiber *threads, int count, int stuck) {
    int moved = 0;
    for (int i = 0; i < count; ++i) {
        fiber *f = threads + i;
        if (f->state != WAITS_PHASE) continue;
        phase_barrier *b = (phase_barrier *)(uintptr_t)f->value;
        if (b->phase == f->answer && !stuck) continue;
        if (b->phase == f->answer) {
            tell_wait("divergent-barrier", f, f, f->site, "phase");
            b->phase += 1, b->pending = b->expected, stuck = 0;
        }
        f->state = RUNS, moved = 1;
    }
    return moved;
}

/* Warps. A waiting thread names the lanes that it waits for. */
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

/* The values of all lanes of a mask; a lane's value holds until its next call. */
static uint64_t gathered[MOST_FIBERS + WARP];
const uint64_t *noyau_gather(unsigned mask, uint64_t value, const void *pc) {
    if (mode != GRID) {
        for (int i = 0; i < WARP; ++i) gathered[i] = value;
        return gathered;
    }
    noyau_warp(GATHER, mask, value, 0, WARP, pc);
    return gathered + (now - fibers - now->number % WARP);
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

/* Releases the lanes of `who`, each with its answer. */
static void answer_warp(fiber *first, int lanes, unsigned who) {
    uint64_t ballot = 0;
    for (int i = 0; i < lanes; ++i)
        if (who >> i & 1 && first[i].value) ballot |= 1u << i;
    for (int i = 0; i < lanes; ++i) {
        fiber *f = first + i;
        if (!(who >> i & 1)) continue;
        if (f->operation == BALLOT) f->answer = ballot;
        if (f->operation == GATHER) gathered[f - fibers] = f->value;
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
    for (int i = 0; i < lanes; ++i) {
        if (!(who >> i & 1)) continue;
        if (first[i].operation == SYNC_WARP) first[i].time += (first[i].time & 0xFFF) < 0xFFF;
        first[i].state = RUNS;
    }
}

/* Whether some lanes of a warp continued. `stuck`: no other can run, so the missing ones will not come. */
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
        answer_warp(first, lanes, who);
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

/* A thread that reads the same place again and again, or sleeps, may wait for another: it gives up its turn. */
enum { SPINS = 64, SPIN_PASSES = 32 };
static void may_wait(const void *at) {
    if (mode != GRID) return;
    now->spins = at && now->spins_at == at ? now->spins + 1 : 1, now->spins_at = at;
    if (at && now->spins < SPINS) return;
    now->is_spinning = 1;
    give_way(RUNS);
}
void noyau_sleep(void) { may_wait(0); }

/* Runs a block until all of its threads have ended, or wait for the grid (WAITS_GRID), or only wait for threads of
   other blocks (RUNS). */
static int run_block(fiber *threads, int count) {
    for (int passes = 0; !is_grid_over;) {
        int running = 0, spinning = 0, waiting = 0, ended = 0, at_grid = 0, moved = 0;
        for (int i = 0; i < count; ++i) {
            if (threads[i].state != RUNS) continue;
            threads[i].is_spinning = 0;
            step_thread(threads + i), i = (int)(last_to_wait - threads);
            spinning += threads[i].state == RUNS && threads[i].is_spinning;
        }
        for (int i = 0; i < count; i += WARP) {
            const int lanes = count - i < WARP ? count - i : WARP;
            while (resolve_warp(threads + i, lanes, 0)) moved = 1;
        }
        if (resolve_phases(threads, count, 0) || moved) continue;
        for (int i = 0; i < count; ++i) {
            running += threads[i].state == RUNS, ended += threads[i].state == ENDED;
            waiting += threads[i].state == WAITS_BARRIER, at_grid += threads[i].state == WAITS_GRID;
        }
        if (ended == count) return ENDED;
        if (running > spinning) continue;
        if (spinning && ++passes < SPIN_PASSES) continue;
        if (spinning) return RUNS;
        if (at_grid + ended == count) return WAITS_GRID;
        for (int i = 0; i < count && waiting + ended + at_grid < count && !moved; i += WARP)
            moved = resolve_warp(threads + i, count - i < WARP ? count - i : WARP, 1);
        if (!moved && waiting) pass_barrier(threads, count, WAITS_BARRIER);
        else if (!moved) resolve_phases(threads, count, 1);
    }
    return ENDED;
}

/* Fences: what a block did before a fence, and then an atomic, is visible to threads that meet that atomic later. */
static void open_learnt(void) {
    learnt_count = grid_shape.x * grid_shape.y * grid_shape.z;
    if (!learnt) learnt = __real_malloc(learnt_count * sizeof *learnt);
    if (!learnt) fatal("no memory");
    __real_memset(learnt, 0, learnt_count * sizeof *learnt);
}

void noyau_fence(void) {
    if (mode != GRID) return;
    now->fenced = 1;
    if (any_fence) return;
    any_fence = 1;
    open_learnt();
}

/* A thread reaches an atomic, perhaps behind a fence: threads that reach it later know what it did until then. */
enum { MOST_RELEASES = BY_VOLATILE - 1, MOST_LOOKED_AT = 4096 };
static void hand_on(meeting *m) {
    uint32_t k = 0;
    while (k < 4 && now->met[k].at != m) ++k;
    if (k == 4) k = now->met_next++ % 4;
    now->met[k].at = m, now->met[k].count = m->release_count;
    if (!now->fenced || now->releases == MOST_RELEASES) return;
    if (m->release_count == m->release_room) {
        const int wider = m->release_room ? 2 * m->release_room : 16;
        handing *grown = __real_malloc((size_t)wider * sizeof *grown);
        if (!grown) fatal("no memory");
        if (m->release_count) __real_memcpy(grown, m->releases, (size_t)m->release_count * sizeof *grown);
        __real_free(m->releases);
        m->releases = grown, m->release_room = wider;
    }
    m->releases[m->release_count++] = (handing){grid_block * grid_threads + (uint32_t)now->number + 1, ++now->releases};
}

/* Whether the running thread reached an atomic at which the other one had released since its access. */
static int is_handed_on(const visit *was) {
    for (int k = 0; any_fence && k < 4; ++k) {
        const meeting *m = now->met[k].at;
        if (!m || m->generation != launches) continue;
        for (int i = now->met[k].count, left = MOST_LOOKED_AT; i-- > 0 && left-- > 0;)
            if (m->releases[i].owner == was->owner && m->releases[i].number > was->locks) return 1;
    }
    return 0;
}

/* An access that orders like an atomic. */
static void meet_blocks(const void *at) {
    if (mode != GRID || !any_fence) return;
    meeting *m = meeting_at(at);
    const uint32_t cells = learnt_count * 2; /* per block the owner and its time, for this launch */
    if (m->generation != launches) m->generation = launches, m->release_count = 0, forget(&m->seen);
    hand_on(m);
    widen(&m->seen, cells);
    for (uint32_t i = 0; i < learnt_count; ++i)
        if (m->seen.at[2 * i] && m->seen.at[2 * i + 1] >= learnt[i].time)
            learnt[i] = (release){m->seen.at[2 * i], m->seen.at[2 * i + 1]};
    if (now->fenced) {
        m->seen.at[2 * grid_block] = grid_block * grid_threads + (uint32_t)now->number + 1;
        m->seen.at[2 * grid_block + 1] = now->time;
    }
}

static void touch_volatile(void *at, int bytes, int how, int site) {
    const block *b = mode == GRID && (char *)at >= arena && (char *)at < arena_end ? among(blocks, block_count, at) : 0;
    if (!b || b->kind == SHARED) {
        touch(at, bytes, how, site, 1);
        return;
    }
    if (how == READ) may_wait(at);
    is_volatile = 1;
    touch(at, bytes, how == READ ? ATOMIC : WRITE, site, 1);
    is_volatile = 0;
    meet_blocks(at);
}

/* An access by a stand-in of a library's function, with the line that calls it. */
void noyau_touch(const void *at, int bytes, int writes, const void *pc) { touch(at, bytes, writes ? WRITE : READ, site_of(pc), 1); }

void noyau_atomic(void *at, int bytes, int reads, const void *pc) {
    may_wait(at);
    is_swap = reads == 2;
    touch(at, bytes, ATOMIC, site_of(pc), reads != 0);
    is_swap = 0;
    meet_blocks(at);
}
