/* OpenMP as gcc calls it: the threads of a team run one after the other, each from one barrier to the next.

   Which thread gets which iterations of a loop whose schedule leaves that open is said by the plan: in blocks, in turns,
   or drawn. */

static int wanted_threads = 4, plan, team = 1, in_team;
static uint64_t plan_seed = 1;

enum { BLOCKS, TURNS, DRAWN };

/* A region within a region has a team of one. */
static int team_size(void) { return in_team && !now->alone ? team : 1; }
static int own_number(void) { return in_team && !now->alone ? now->number : 0; }

/* A loop, sections or single that a team shares. */
typedef struct {
    int64_t from, to, step, chunk;
    int kind, given, arrived;
    void *copied, *memory;
    const void *critical;
} share;
static share shares[1 << 12];

static int64_t chunks_of(const share *s) {
    const int64_t span = s->step > 0 ? s->to - s->from : s->from - s->to, each = s->step > 0 ? s->step : -s->step;
    const int64_t count = span > 0 ? (span + each - 1) / each : 0;
    return (count + s->chunk - 1) / s->chunk;
}

static int owner_of_chunk(const share *s, int64_t chunk) {
    const int team = team_size();
    if (team == 1) return 0;
    if (s->kind == BLOCKS) {
        const int64_t count = chunks_of(s), each = (count + team - 1) / team;
        return (int)(chunk / (each ? each : 1));
    }
    if (s->kind == TURNS) return (int)(chunk % team);
    uint64_t mixed = ((uint64_t)chunk + plan_seed * 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    mixed ^= mixed >> 29;
    return (int)(mixed * 0x94D049BB133111EBu >> 33) % team;
}

static int next_piece(int64_t *from, int64_t *to) {
    share *s = shares + now->region_step % (1 << 12);
    const int64_t count = chunks_of(s);
    while (now->chunk < count) {
        const int64_t chunk = now->chunk++;
        if (owner_of_chunk(s, chunk) != (own_number())) continue;
        *from = s->from + chunk * s->chunk * s->step;
        int64_t end = *from + s->chunk * s->step;
        if (s->step > 0 ? end > s->to : end < s->to) end = s->to;
        *to = end;
        return 1;
    }
    return 0;
}

static share *next_share(void) {
    now->region_step += 1, now->chunk = 0;
    share *s = shares + now->region_step % (1 << 12);
    if (s->arrived++ == 0) *s = (share){.arrived = 1};
    if (s->arrived >= team_size()) s->arrived = 0; /* the last one; the place is used again later */
    return s;
}

static int start_loop(int64_t from, int64_t to, int64_t step, int64_t chunk, int kind, int64_t *a, int64_t *b) {
    share *s = next_share();
    s->from = from, s->to = to, s->step = step ? step : 1, s->kind = kind, s->chunk = chunk > 0 ? chunk : 1;
    if (kind == BLOCKS && chunk <= 0) {
        s->chunk = 1;
        const int64_t count = chunks_of(s);
        const int team = team_size();
        s->chunk = (count + team - 1) / team > 0 ? (count + team - 1) / team : 1;
        s->kind = TURNS;
    }
    return a ? next_piece(a, b) : 1;
}

static strand *team_strands[MOST_FIBERS];

static void join_tasks(clocks *into);

/* Everyone has arrived: each has then seen what all have done. */
static void merge_team(void) {
    clocks all = {0, 0};
    for (int i = 0; i < team; ++i) learn(&all, &team_strands[i]->seen);
    join_tasks(&all);
    for (int i = 0; i < team; ++i) learn(&team_strands[i]->seen, &all), tick(team_strands[i]);
    __real_free(all.at);
}

static void run_team(void) {
    for (;;) {
        int waiting = 0, ended = 0, moved = 0, at = -1, other = -1;
        for (int i = 0; i < team; ++i) {
            fiber *f = fibers + i;
            if (f->state == RUNS) switch_to(f), moved = 1;
            waiting += f->state == WAITS_BARRIER, ended += f->state == ENDED;
            if (f->state == WAITS_BARRIER) at = i;
            if (f->state == ENDED || f->state == WAITS_THREAD) other = i;
        }
        if (ended == team) return;
        if (waiting == team) {
            merge_team();
            for (int i = 0; i < team; ++i) fibers[i].state = RUNS;
            continue;
        }
        for (int i = 0; i < team; ++i) /* those who wait for a lock look again */
            if (fibers[i].state == WAITS_THREAD) fibers[i].state = RUNS, moved = 1;
        static int rounds;
        rounds = moved && !waiting ? rounds : rounds + 1;
        if (at >= 0 && other >= 0 && fibers[other].state == ENDED && waiting + ended == team) {
            const visit who = {fibers[other].strand->owner, 0, (uint16_t)fibers[other].site, 0};
            fiber *caller = now;
            now = fibers + at;
            found("divergent-barrier", READ, fibers[at].site, 0, 0, &who, READ, "%s", "");
            now = caller;
            for (int i = 0; i < team; ++i)
                if (fibers[i].state == WAITS_BARRIER) fibers[i].state = RUNS;
        } else if (rounds > 100000) {
            found("crash", READ, last_site, 0, 0, 0, READ, "%s", "its threads wait for each other");
            stop_run();
        }
    }
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
    start_loop(w->from, w->to, w->step, w->chunk, w->kind, 0, 0);
    w->run(w->data);
}

void GOMP_parallel(void (*run)(void *), void *data, unsigned count, unsigned flags) {
    (void)flags;
    if (in_team || mode == GRID) {
        const int step = now->region_step;
        now->alone += 1;
        now->region_step = (now->number + 1) * 16 + step + (1 << 10); /* shares that nobody else uses at a time */
        run(data);
        now->region_step = step, now->alone -= 1;
        return;
    }
    const int before = mode;
    strand *parent = now->strand;
    fiber *caller = now;
    team = (int)(count ? count : (unsigned)wanted_threads);
    if (team > 256) team = 256;
    mode = THREADS, in_team = 1, now_round += 1 << 2;
    begin_region((const char *)(run == run_whole ? ((const whole *)data)->run : run) + 1, 0);
    __real_memset(shares, 0, sizeof shares);
    for (int i = 0; i < team; ++i) {
        fiber *f = make_fiber(i, run, data);
        f->strand = team_strands[i] = begin_strand(parent);
    }
    fiber *was = scheduler;
    scheduler = caller;
    run_team();
    scheduler = was;
    join_tasks(&parent->seen);
    for (int i = 0; i < team; ++i) learn(&parent->seen, &team_strands[i]->seen), end_strand(team_strands[i]);
    tick(parent);
    now_round += 1 << 2;
    mode = before, in_team = 0, team = 1;
}

void GOMP_barrier(void) {
    now->site = HERE;
    if (team_size() > 1) give_way(WAITS_BARRIER);
}
static void end_barrier(int site) {
    now->site = site;
    if (team_size() > 1) give_way(WAITS_BARRIER);
}

static int64_t chunk_of(int64_t wished) { return wished > 0 ? wished : 1; }
static int open_plan(void) { return plan == BLOCKS ? BLOCKS : plan; }

#define LOOP(name, type, kind, chunk)                                                                      \
    _Bool GOMP_loop_##name##_start(type from, type to, type step, type wished, type *a, type *b) {         \
        (void)wished;                                                                                      \
        int64_t x, y;                                                                                      \
        const int any = start_loop((int64_t)from, (int64_t)to, (int64_t)step, chunk, kind, &x, &y);        \
        if (any) *a = (type)x, *b = (type)y;                                                               \
        return any;                                                                                        \
    }
#define RUNTIME(name)                                                                                      \
    _Bool GOMP_loop_##name##_start(long from, long to, long step, long *a, long *b) {                      \
        int64_t x, y;                                                                                      \
        const int any = start_loop(from, to, step, plan == BLOCKS ? 0 : 1, open_plan(), &x, &y);           \
        if (any) *a = (long)x, *b = (long)y;                                                               \
        return any;                                                                                        \
    }
#define NEXT(name)                                                                                         \
    _Bool GOMP_loop_##name##_next(long *a, long *b) {                                                      \
        int64_t x, y;                                                                                      \
        const int any = next_piece(&x, &y);                                                                \
        if (any) *a = (long)x, *b = (long)y;                                                               \
        return any;                                                                                        \
    }
_Bool GOMP_loop_static_start(long from, long to, long step, long wished, long *a, long *b) {
    int64_t x, y;
    const int any = start_loop(from, to, step, wished, wished > 0 ? TURNS : BLOCKS, &x, &y);
    if (any) *a = (long)x, *b = (long)y;
    return any;
}
#define OPEN_KIND plan == BLOCKS ? TURNS : plan
LOOP(dynamic, long, OPEN_KIND, chunk_of(wished))
LOOP(guided, long, OPEN_KIND, chunk_of(wished))
LOOP(nonmonotonic_dynamic, long, OPEN_KIND, chunk_of(wished))
LOOP(nonmonotonic_guided, long, OPEN_KIND, chunk_of(wished))
RUNTIME(runtime)
RUNTIME(nonmonotonic_runtime)
RUNTIME(maybe_nonmonotonic_runtime)
NEXT(static)
NEXT(dynamic)
NEXT(guided)
NEXT(nonmonotonic_dynamic)
NEXT(nonmonotonic_guided)
NEXT(runtime)
NEXT(nonmonotonic_runtime)
NEXT(maybe_nonmonotonic_runtime)

/* Loops with an ordered part: dealt in turns, and each ordered part waits until the pieces before it are done. */
#define NEXT_ORDERED(name)                                                                                 \
    _Bool GOMP_loop_ordered_##name##_next(long *a, long *b) {                                              \
        int64_t x, y;                                                                                      \
        shares[now->region_step % (1 << 12)].given = (int)now->chunk;                                      \
        const int any = next_piece(&x, &y);                                                                \
        if (any) *a = (long)x, *b = (long)y;                                                               \
        return any;                                                                                        \
    }
NEXT_ORDERED(static)
NEXT_ORDERED(dynamic)
NEXT_ORDERED(guided)
NEXT_ORDERED(runtime)
LOOP(ordered_static, long, TURNS, chunk_of(wished))
LOOP(ordered_dynamic, long, TURNS, chunk_of(wished))
LOOP(ordered_guided, long, TURNS, chunk_of(wished))
_Bool GOMP_loop_ordered_runtime_start(long from, long to, long step, long *a, long *b) {
    int64_t x, y;
    const int any = start_loop(from, to, step, 1, TURNS, &x, &y);
    if (any) *a = (long)x, *b = (long)y;
    return any;
}

/* Loops over unsigned long long. */
typedef unsigned long long ull;
#define ULL(name, takes, passes)                                                                           \
    _Bool GOMP_loop_ull_##name##_start(_Bool up, ull from, ull to, ull step takes, ull *a, ull *b) {       \
        (void)up;                                                                                          \
        int64_t x, y;                                                                                      \
        const int any = start_loop((int64_t)from, (int64_t)to, (int64_t)step, passes, &x, &y);             \
        if (any) *a = (ull)x, *b = (ull)y;                                                                 \
        return any;                                                                                        \
    }                                                                                                      \
    _Bool GOMP_loop_ull_##name##_next(ull *a, ull *b) {                                                    \
        int64_t x, y;                                                                                      \
        const int any = next_piece(&x, &y);                                                                \
        if (any) *a = (ull)x, *b = (ull)y;                                                                 \
        return any;                                                                                        \
    }
#define COMMA ,
#define WISHED COMMA ull wished
ULL(static, WISHED, (int64_t)wished COMMA (wished ? TURNS : BLOCKS))
ULL(dynamic, WISHED, chunk_of((int64_t)wished) COMMA OPEN_KIND)
ULL(guided, WISHED, chunk_of((int64_t)wished) COMMA OPEN_KIND)
ULL(nonmonotonic_dynamic, WISHED, chunk_of((int64_t)wished) COMMA OPEN_KIND)
ULL(nonmonotonic_guided, WISHED, chunk_of((int64_t)wished) COMMA OPEN_KIND)
ULL(runtime, , (plan == BLOCKS ? 0 : 1) COMMA open_plan())
ULL(nonmonotonic_runtime, , (plan == BLOCKS ? 0 : 1) COMMA open_plan())
ULL(maybe_nonmonotonic_runtime, , (plan == BLOCKS ? 0 : 1) COMMA open_plan())

static void parallel_loop(void (*run)(void *), void *data, unsigned count, long from, long to, long step, long chunk,
                          int kind) {
    whole w = {run, data, from, to, step, chunk, kind};
    GOMP_parallel(run_whole, &w, count, 0);
}

#define PARALLEL(name)                                                                                     \
    void GOMP_parallel_loop_##name(void (*run)(void *), void *data, unsigned count, long from, long to,    \
                                   long step, long chunk, unsigned flags) {                                \
        (void)flags;                                                                                       \
        parallel_loop(run, data, count, from, to, step, chunk_of(chunk), OPEN_KIND);                       \
    }
#define PARALLEL_RUNTIME(name)                                                                             \
    void GOMP_parallel_loop_##name(void (*run)(void *), void *data, unsigned count, long from, long to,    \
                                   long step, unsigned flags) {                                            \
        (void)flags;                                                                                       \
        parallel_loop(run, data, count, from, to, step, plan == BLOCKS ? 0 : 1, open_plan());              \
    }
void GOMP_parallel_loop_static(void (*run)(void *), void *data, unsigned count, long from, long to, long step,
                               long chunk, unsigned flags) {
    (void)flags;
    parallel_loop(run, data, count, from, to, step, chunk, chunk > 0 ? TURNS : BLOCKS);
}
PARALLEL(dynamic)
PARALLEL(guided)
PARALLEL(nonmonotonic_dynamic)
PARALLEL(nonmonotonic_guided)
PARALLEL_RUNTIME(runtime)
PARALLEL_RUNTIME(nonmonotonic_runtime)
PARALLEL_RUNTIME(maybe_nonmonotonic_runtime)

void GOMP_loop_end(void) { end_barrier(HERE); }
void GOMP_loop_end_nowait(void) {}

/* Sections and single. */
unsigned GOMP_sections_next(void) {
    int64_t a, b;
    return next_piece(&a, &b) ? (unsigned)a : 0;
}
unsigned GOMP_sections_start(unsigned count) {
    int64_t a, b;
    return start_loop(1, (int64_t)count + 1, 1, 1, OPEN_KIND, &a, &b) ? (unsigned)a : 0;
}
void GOMP_sections_end(void) { end_barrier(HERE); }
void GOMP_sections_end_nowait(void) {}
void GOMP_parallel_sections(void (*run)(void *), void *data, unsigned threads, unsigned count, unsigned flags) {
    (void)flags;
    parallel_loop(run, data, threads, 1, (long)count + 1, 1, 1, OPEN_KIND);
}

_Bool GOMP_single_start(void) {
    share *s = next_share();
    const int wanted = plan == BLOCKS ? 0 : now->region_step % team_size(); /* not always the first */
    (void)s;
    return team_size() == 1 || now->number == wanted;
}
void *GOMP_single_copy_start(void) {
    share *s = next_share();
    if (own_number() == 0) return 0;
    const int step = now->region_step;
    end_barrier(HERE);
    (void)s;
    return shares[step % (1 << 12)].copied;
}
void GOMP_single_copy_end(void *data) {
    shares[now->region_step % (1 << 12)].copied = data;
    end_barrier(HERE);
}

/* Locks: two accesses under the same one do not race. */
static void take(const void *lock, int site) {
    meeting *m = meeting_at(lock);
    now->site = site;
    while (m->holder && m->holder != now->strand) {
        if (!in_team && mode != THREADS) break;
        give_way(WAITS_THREAD);
    }
    m->holder = now->strand, m->count += 1;
    now->strand->locks = with_lock(now->strand->locks, lock);
}
static void leave(const void *lock) {
    meeting *m = meeting_at(lock);
    m->holder = 0, m->count = 0;
    now->strand->locks = without_lock(now->strand->locks, lock);
}

static const char one_critical, one_atomic, one_ordered;
void GOMP_critical_start(void) { take(&one_critical, HERE); }
void GOMP_critical_end(void) { leave(&one_critical); }
void GOMP_critical_name_start(void **name) { take(name, HERE); }
void GOMP_critical_name_end(void **name) { leave(name); }
void GOMP_atomic_start(void) { take(&one_atomic, HERE); }
void GOMP_atomic_end(void) { leave(&one_atomic); }
void GOMP_ordered_start(void) {
    const share *s = shares + now->region_step % (1 << 12);
    while (team_size() > 1 && s->given < now->chunk - 1) give_way(WAITS_THREAD);
    take(&one_ordered, HERE);
}
void GOMP_ordered_end(void) { leave(&one_ordered); }

void omp_init_lock(void **lock) { (void)lock; }
void omp_init_lock_with_hint(void **lock, int hint) { (void)lock, (void)hint; }
void omp_destroy_lock(void **lock) { (void)lock; }
void omp_set_lock(void **lock) { take(lock, HERE); }
void omp_unset_lock(void **lock) { leave(lock); }
int omp_test_lock(void **lock) {
    if (meeting_at(lock)->holder) return 0;
    take(lock, HERE);
    return 1;
}
void omp_init_nest_lock(void **lock) { (void)lock; }
void omp_destroy_nest_lock(void **lock) { (void)lock; }
void omp_set_nest_lock(void **lock) { take(lock, HERE); }
void omp_unset_nest_lock(void **lock) {
    meeting *m = meeting_at(lock);
    if (--m->count <= 0) leave(lock);
}

int omp_get_thread_num(void) { return own_number(); }
int omp_get_num_threads(void) { return team_size(); }
int omp_get_max_threads(void) { return wanted_threads; }
int omp_get_num_procs(void) { return wanted_threads; }
int omp_in_parallel(void) { return in_team && team > 1; }
int omp_get_level(void) { return in_team; }
int omp_get_active_level(void) { return in_team && team > 1; }
int omp_get_thread_limit(void) { return 256; }
int omp_get_team_num(void) { return 0; }
int omp_get_num_teams(void) { return 1; }
int omp_get_dynamic(void) { return 0; }
int omp_get_nested(void) { return 0; }
int omp_get_max_active_levels(void) { return 1; }
int omp_get_num_devices(void) { return 0; }
int omp_is_initial_device(void) { return 1; }
void omp_set_num_threads(int count) { wanted_threads = count > 0 ? count : 1; }
void omp_set_dynamic(int on) { (void)on; }
void omp_set_nested(int on) { (void)on; }
void omp_set_max_active_levels(int levels) { (void)levels; }
void omp_set_schedule(int kind, int chunk) { (void)kind, (void)chunk; }
double omp_get_wtime(void) {
    struct timeval t;
    gettimeofday(&t, 0);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}
double omp_get_wtick(void) { return 1e-6; }

/* What the call of a function that works in pieces uses. */
int noyau_own_number(void) { return own_number(); }
int noyau_team_size(void) { return team_size(); }
void noyau_parallel(void (*run)(void *), void *data) { GOMP_parallel(run, data, 0, 0); }
