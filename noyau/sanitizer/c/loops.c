/* Worksharing: if the schedule of a loop leaves open which thread of a team does which iterations, the plan decides: in
   blocks, in turns, or at random. */

static share *own_share(void) { return team_size() > 1 ? now->team->shares + now->region_step % SHARES : &now->own; }

static int64_t chunks_of(const share *s) {
    const int64_t span = s->step > 0 ? s->to - s->from : s->from - s->to, each = s->step > 0 ? s->step : -s->step;
    const int64_t count = span > 0 ? (span + each - 1) / each : 0;
    return (count + s->chunk - 1) / s->chunk;
}

static int owner_of_chunk(const share *s, int64_t chunk) {
    const int size = team_size();
    if (s->kind == TURNS) return (int)(chunk % size);
    if (s->kind == ANEW) return (int)((chunk + s->number) % size);
    uint64_t mixed = ((uint64_t)chunk + plan_seed * 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    mixed ^= mixed >> 29;
    return (int)(mixed * 0x94D049BB133111EBu >> 33) % size;
}

static int next_piece(int64_t *from, int64_t *to) {
    share *s = own_share();
    const int64_t count = chunks_of(s);
    now->lanes = (lanes){0};
    while (now->chunk < count) {
        const int64_t chunk = now->chunk++;
        if (owner_of_chunk(s, chunk) != own_number()) continue;
        *from = s->from + chunk * s->chunk * s->step;
        int64_t end = *from + s->chunk * s->step;
        if (s->step > 0 ? end > s->to : end < s->to) end = s->to;
        *to = end;
        return 1;
    }
    return 0;
}

static share *next_share(void) {
    static uint32_t shares;
    now->region_step += 1, now->chunk = 0;
    share *s = own_share();
    if (s->arrived++ == 0) *s = (share){.arrived = 1, .number = ++shares};
    if (s->arrived >= team_size()) s->arrived = 0; /* the last arrival; the entry is used again later */
    return s;
}

/* Starts a loop whose pieces are distributed as `kind` says; BLOCKS without a chunk gives one block to each thread. */
static share *start_loop(int64_t from, int64_t to, int64_t step, int64_t chunk, int kind) {
    share *s = next_share();
    s->from = from, s->to = to, s->step = step ? step : 1, s->kind = kind == BLOCKS ? TURNS : kind;
    s->chunk = chunk > 0 ? chunk : 1;
    if (kind == BLOCKS && chunk <= 0) {
        const int64_t count = chunks_of(s), each = (count + team_size() - 1) / team_size();
        s->chunk = each > 0 ? each : 1;
    }
    return s;
}

/* A parallel region that is one loop: the region's own code asks for pieces. */
typedef struct {
    void (*run)(void *);
    void *data;
    int64_t from, to, step, chunk;
    int kind;
} whole;

static void run_whole(void *given) {
    const whole *w = given;
    start_loop(w->from, w->to, w->step, w->chunk, w->kind);
    w->run(w->data);
}

static void parallel_loop(void (*run)(void *), void *data, unsigned count, long from, long to, long step, long chunk,
                          int kind) {
    whole w = {run, data, from, to, step, chunk, kind};
    run_region(run_whole, (const void *)run, &w, count, now->strand ? now->strand->group : 0);
}

#define OPEN_KIND (plan == DRAWN ? DRAWN : ANEW)        /* for schedules that distribute at run time */
#define OPEN_CHUNK (plan == BLOCKS ? 0 : 1)             /* for a schedule that nobody names */
#define WISHED (wished > 0 ? (int64_t)wished : 1)
#define STATIC wished > 0 ? TURNS : BLOCKS
typedef unsigned long long ull;

#define NEXT(name, type, next)                                                                             \
    _Bool GOMP_##name##_next(type *a, type *b) {                                                           \
        int64_t x, y;                                                                                      \
        const int any = next(&x, &y);                                                                      \
        if (any) *a = (type)x, *b = (type)y;                                                               \
        return any;                                                                                        \
    }
#define START(name, type, parameters, chunk, kind)                                                         \
    _Bool GOMP_##name##_start parameters {                                                                 \
        start_loop((int64_t)from, (int64_t)to, (int64_t)step, chunk, kind);                                \
        int64_t x, y;                                                                                      \
        const int any = next_piece(&x, &y);                                                                \
        if (any) *a = (type)x, *b = (type)y;                                                               \
        return any;                                                                                        \
    }
#define LOOP(name, chunk, kind, next)                                                                      \
    START(loop_##name, long, (long from, long to, long step, long wished, long *a, long *b), chunk, kind)  \
    NEXT(loop_##name, long, next)                                                                          \
    START(loop_ull_##name, ull, (_Bool up, ull from, ull to, ull step, ull wished, ull *a, ull *b),        \
          ((void)up, chunk), kind)                                                                         \
    NEXT(loop_ull_##name, ull, next)
#define RUNTIME(name, chunk, kind, next)                                                                   \
    START(loop_##name, long, (long from, long to, long step, long *a, long *b), chunk, kind)               \
    NEXT(loop_##name, long, next)                                                                          \
    START(loop_ull_##name, ull, (_Bool up, ull from, ull to, ull step, ull *a, ull *b),                    \
          ((void)up, chunk), kind)                                                                         \
    NEXT(loop_ull_##name, ull, next)
LOOP(static, (int64_t)wished, STATIC, next_piece)
LOOP(dynamic, WISHED, OPEN_KIND, next_piece)
LOOP(guided, WISHED, OPEN_KIND, next_piece)
LOOP(nonmonotonic_dynamic, WISHED, OPEN_KIND, next_piece)
LOOP(nonmonotonic_guided, WISHED, OPEN_KIND, next_piece)
RUNTIME(runtime, OPEN_CHUNK, plan, next_piece)
RUNTIME(nonmonotonic_runtime, OPEN_CHUNK, plan, next_piece)
RUNTIME(maybe_nonmonotonic_runtime, OPEN_CHUNK, plan, next_piece)

/* Loops with an ordered part: a thread that has done a piece waits until those before it are done. */
static void wait_for_pieces(const share *s) {
    while (team_size() > 1 && s->given < now->chunk - 1) wait_for_others();
}
static int next_ordered(int64_t *from, int64_t *to) {
    share *s = own_share();
    if (now->chunk && owner_of_chunk(s, now->chunk - 1) == own_number()) {
        wait_for_pieces(s);
        s->given = (int)now->chunk, steps += 1;
    }
    return next_piece(from, to);
}
LOOP(ordered_static, WISHED, TURNS, next_ordered)
LOOP(ordered_dynamic, WISHED, TURNS, next_ordered)
LOOP(ordered_guided, WISHED, TURNS, next_ordered)
RUNTIME(ordered_runtime, 1, TURNS, next_ordered)
void GOMP_ordered_start(void) {
    wait_for_pieces(own_share());
    if (mode == THREADS) acquire_at(&one_ordered);
}
void GOMP_ordered_end(void) {
    if (mode == THREADS) release_at(&one_ordered);
}

/* Nests of loops whose iterations wait for others by `ordered depend`: each that is done has a meeting. */
static const void *iteration(const share *s, int64_t number) {
    return (const void *)((uintptr_t)s->number << 40 ^ (uintptr_t)number << 1 ^ (uintptr_t)1 << 63);
}
static _Bool start_doacross(unsigned dims, const int64_t *counts, int64_t chunk, int kind, int64_t *a, int64_t *b) {
    if (dims > 8) fatal("a doacross nest of more than 8 loops cannot be watched");
    share *s = start_loop(0, counts[0], 1, chunk, kind);
    s->dims = (int)dims;
    for (unsigned i = 0; i < dims; ++i) s->counts[i] = counts[i];
    return (_Bool)next_piece(a, b);
}
#define DOACROSS(name, chunk, kind)                                                                                   \
    _Bool GOMP_loop_doacross_##name##_start(unsigned dims, long *counts, long wished, long *a, long *b) {             \
        return start_doacross(dims, (const int64_t *)counts, chunk, kind, (int64_t *)a, (int64_t *)b);                \
    }                                                                                                                 \
    _Bool GOMP_loop_ull_doacross_##name##_start(unsigned dims, ull *counts, ull wished, ull *a, ull *b) {             \
        return start_doacross(dims, (const int64_t *)counts, chunk, kind, (int64_t *)a, (int64_t *)b);                \
    }
DOACROSS(static, (int64_t)wished, STATIC)
DOACROSS(dynamic, WISHED, OPEN_KIND)
DOACROSS(guided, WISHED, OPEN_KIND)
_Bool GOMP_loop_doacross_runtime_start(unsigned dims, long *counts, long *a, long *b) {
    return start_doacross(dims, (const int64_t *)counts, OPEN_CHUNK, plan, (int64_t *)a, (int64_t *)b);
}
_Bool GOMP_loop_ull_doacross_runtime_start(unsigned dims, ull *counts, ull *a, ull *b) {
    return start_doacross(dims, (const int64_t *)counts, OPEN_CHUNK, plan, (int64_t *)a, (int64_t *)b);
}
static int64_t number_of_iteration(const share *s, const int64_t *at) {
    int64_t number = at[0];
    for (int i = 1; i < s->dims; ++i) number = number * s->counts[i] + at[i];
    return number;
}
static void post_iteration(const int64_t *at) {
    if (mode != THREADS) return;
    const void *place = iteration(own_share(), number_of_iteration(own_share(), at));
    release_at(place);
    meeting_at(place)->count = 1, steps += 1;
}
static void await_iteration(const int64_t *at, int site) {
    share *s = own_share();
    if (mode != THREADS) return;
    const void *place = iteration(s, number_of_iteration(s, at));
    const int is_own = owner_of_chunk(s, at[0] / s->chunk) == own_number(); /* done already, or it waits for itself */
    now->site = site;
    while (!is_own && !meeting_at(place)->count) wait_for_others();
    acquire_at(place);
}
#define AWAIT(name, type)                                                                                  \
    void GOMP_doacross_##name##post(type *at) { post_iteration((const int64_t *)at); }                     \
    void GOMP_doacross_##name##wait(type first, ...) {                                                     \
        int64_t at[8] = {(int64_t)first};                                                                  \
        va_list rest;                                                                                      \
        va_start(rest, first);                                                                             \
        for (int i = 1; i < own_share()->dims; ++i) at[i] = (int64_t)va_arg(rest, type);                   \
        va_end(rest);                                                                                      \
        await_iteration(at, HERE);                                                                         \
    }
AWAIT(, long)
AWAIT(ull_, ull)

#define PARALLEL(name, chunk, kind)                                                                        \
    void GOMP_parallel_loop_##name(void (*run)(void *), void *data, unsigned count, long from, long to,    \
                                   long step, long wished, unsigned flags) {                               \
        (void)flags;                                                                                       \
        parallel_loop(run, data, count, from, to, step, chunk, kind);                                      \
    }
#define PARALLEL_RUNTIME(name)                                                                             \
    void GOMP_parallel_loop_##name(void (*run)(void *), void *data, unsigned count, long from, long to,    \
                                   long step, unsigned flags) {                                            \
        (void)flags;                                                                                       \
        parallel_loop(run, data, count, from, to, step, OPEN_CHUNK, plan);                                 \
    }
PARALLEL(static, wished, STATIC)
PARALLEL(dynamic, WISHED, OPEN_KIND)
PARALLEL(guided, WISHED, OPEN_KIND)
PARALLEL(nonmonotonic_dynamic, WISHED, OPEN_KIND)
PARALLEL(nonmonotonic_guided, WISHED, OPEN_KIND)
PARALLEL_RUNTIME(runtime)
PARALLEL_RUNTIME(nonmonotonic_runtime)
PARALLEL_RUNTIME(maybe_nonmonotonic_runtime)

void GOMP_loop_end(void) { meet_team(HERE); }
void GOMP_loop_end_nowait(void) {}
_Bool GOMP_loop_end_cancel(void) {
    meet_team(HERE);
    return 0;
}

/* Sections and single. */
unsigned GOMP_sections_next(void) {
    int64_t a, b;
    return next_piece(&a, &b) ? (unsigned)a : 0;
}
unsigned GOMP_sections_start(unsigned count) {
    start_loop(1, (int64_t)count + 1, 1, 1, OPEN_KIND);
    return GOMP_sections_next();
}
void GOMP_sections_end(void) { meet_team(HERE); }
void GOMP_sections_end_nowait(void) {}
_Bool GOMP_sections_end_cancel(void) {
    meet_team(HERE);
    return 0;
}
void GOMP_parallel_sections(void (*run)(void *), void *data, unsigned threads, unsigned count, unsigned flags) {
    (void)flags;
    parallel_loop(run, data, threads, 1, (long)count + 1, 1, 1, OPEN_KIND);
}

_Bool GOMP_single_start(void) {
    next_share();
    const int wanted = plan == BLOCKS ? 0 : now->region_step % team_size(); /* not always the first thread */
    return team_size() == 1 || now->number == wanted;
}
void *GOMP_single_copy_start(void) {
    share *s = next_share();
    if (own_number() == 0) return 0;
    meet_team(HERE);
    return s->copied;
}
void GOMP_single_copy_end(void *data) {
    own_share()->copied = data;
    meet_team(HERE);
}
