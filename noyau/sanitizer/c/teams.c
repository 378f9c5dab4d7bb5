/* OpenMP teams, as gcc calls them: the threads of a team run one after the other, each from one barrier to the next. A
   region within a region has a team of its own, which its thread runs. */

enum { MOST_MEMBERS = 256, SHARES = 1 << 12, MOST_ALONE = 64 };
static int wanted_threads = 4, most_levels = 2; /* a third level has one thread */
static uint64_t plan_seed = 1;

static int team_size(void) { return now->team ? now->team->size : 1; }
static int own_number(void) { return now->team ? now->number : 0; }
static int level_of(const team *t) { return t ? t->level : 0; }

/* Gives the turn to others, as the system may at any time. */
static void pass_turn(int state);
static int thread_count; /* of POSIX: those that were created; number 0 is the program's own */
static void wait_for_others(void) {
    if (now->runner) give_way(WAITS_THREAD);
    else pass_turn(WAITS_THREAD);
}
static void yield_turn(void) {
    now->turn = 0;
    if (mode != THREADS) return;
    if (now->runner) give_way(RUNS);
    else if (thread_count) pass_turn(RUNS);
}

/* All have arrived: each has then seen what all have done, and all tasks of the team. */
static void merge_team(team *t) {
    clocks all = {0};
    for (int i = 0; i < t->size; ++i) learn(&all, &t->strands[i]->seen);
    learn(&all, &t->tasks);
    for (int i = 0; i < t->size; ++i) {
        learn(&t->strands[i]->seen, &all), tick(t->strands[i]);
        end_tasks(t->strands[i]);
    }
    drop(&all);
}

static void stop_stuck(void) {
    found("crash", READ, last_site, 0, 0, 0, READ, "%s", "its threads wait for each other");
    stop_run();
}

static void tell_divergent(const team *t, int at, int gone) {
    const visit who = {.owner = t->strands[gone]->owner, .site = (uint16_t)t->members[gone]->site};
    fiber *caller = now;
    now = t->members[at];
    found("divergent-barrier", READ, now->site, 0, 0, &who, READ, "%s", "");
    now = caller;
}

/* Gives a turn to others than the members of a team, which may wait for them. `seen`: the progress until now; `idle`:
   the rounds without progress. */
static void pass_outward(int64_t *seen, long *idle) {
    *idle = *seen == accesses + steps ? *idle + 1 : 0;
    *seen = accesses + steps;
    if (now->runner || thread_count) wait_for_others();
    else if (*idle > 10000) stop_stuck();
}

static void run_team(team *t) {
    int64_t seen = 0;
    for (long idle = 0;;) {
        int waiting = 0, ended = 0, at = -1, gone = -1;
        for (int k = 0; k < t->size; ++k) {
            const int i = plan == BLOCKS ? k : t->size - 1 - k;
            fiber *f = t->members[i];
            if (f->state == WAITS_THREAD) f->state = RUNS; /* it looks again */
            if (f->state == RUNS) switch_to(f);
            if (f->state == WAITS_BARRIER) waiting += 1, at = i;
            if (f->state == ENDED) ended += 1, gone = i;
        }
        if (ended == t->size) return;
        if (waiting == t->size) merge_team(t);
        else if (waiting && waiting + ended == t->size) tell_divergent(t, at, gone);
        else pass_outward(&seen, &idle);
        for (int i = 0; i < t->size; ++i)
            if (waiting + ended == t->size && t->members[i]->state == WAITS_BARRIER) t->members[i]->state = RUNS;
    }
}

/* Regions that ran with one thread, though the text may mean more: by `if` or num_threads. */
static struct {
    const void *run;
    int has_team;
} alone[MOST_ALONE];
static void note_size(void (*run)(void *), int size) {
    for (int i = 0; i < MOST_ALONE; ++i) {
        if (alone[i].run && alone[i].run != (const void *)run) continue;
        alone[i].run = (const void *)run, alone[i].has_team |= size > 1;
        return;
    }
}

/* A region of one thread, or one within a grid. */
static void run_alone(void (*run)(void *), void *data) {
    team single = {.size = 1, .level = level_of(now->team), .outer = now->team};
    const share own = now->own;
    const int64_t chunk = now->chunk;
    const int number = now->number, step = now->region_step;
    now->team = mode == GRID ? now->team : &single, now->number = mode == GRID ? number : 0;
    run(data);
    now->team = single.outer, now->own = own, now->chunk = chunk, now->number = number;
    now->region_step = step;
}

static int size_of_team(unsigned count) {
    const int level = level_of(now->team);
    if (mode == GRID || level >= most_levels) return 1;
    const int wished = count ? (int)count : level ? 2 : wanted_threads;
    return wished < MOST_MEMBERS ? wished : MOST_MEMBERS;
}

/* The thread_local memory that a thread of the first level keeps between regions; the first thread is the caller. */
static void give_tls(fiber *f, const fiber *caller) {
    static char *kept[MOST_MEMBERS];
    if (!tls_block.bytes || (f->number && level_of(caller->team))) return;
    if (!f->number) {
        f->own_tls = caller->own_tls;
        return;
    }
    if (!kept[f->number]) {
        kept[f->number] = __real_malloc((size_t)tls_block.bytes);
        __real_memcpy(kept[f->number], tls_image, (size_t)tls_block.bytes);
    }
    f->own_tls = kept[f->number];
}

static void run_members(team *t, void (*run)(void *), void *data, group *of_all) {
    char *own_tls[MOST_MEMBERS];
    strand *parent = now->strand;
    for (int i = 0; i < t->size; ++i) {
        fiber *f = t->members[i] = open_fiber(i, run, data);
        f->runner = now, f->team = t, f->league = now->league, f->frame = now->frame;
        f->teams = now->teams, f->team_number = now->team_number;
        f->strand = t->strands[i] = begin_strand(parent, MEMBER, i, t->size);
        f->strand->on = f, f->strand->group = of_all;
        own_tls[i] = f->own_tls;
        give_tls(f, now);
    }
    run_team(t);
    learn(&parent->seen, &t->tasks);
    for (int i = 0; i < t->size; ++i) {
        learn(&parent->seen, &t->strands[i]->seen);
        end_tasks(t->strands[i]), end_strand(t->strands[i], parent);
        t->members[i]->own_tls = own_tls[i];
        close_fiber(t->members[i]);
    }
    tick(parent);
}

/* Later accesses are concurrent with others, until all threads have joined. */
static int begin_threads(void) {
    const int before = mode;
    if (before == SERIAL) mode = THREADS, now_round += 1 << 2;
    return before;
}
static void end_threads(int before) {
    if (before == SERIAL) mode = SERIAL, now_round += 1 << 2;
}

static void run_region(void (*run)(void *), const void *named, void *data, unsigned count, group *of_all) {
    const int size = size_of_team(count);
    if (mode != GRID && !level_of(now->team) && (size > 1 || count == 1)) note_size((void (*)(void *))named, size);
    if (size == 1) {
        run_alone(run, data);
        return;
    }
    fiber *members[MOST_MEMBERS];
    strand *of_members[MOST_MEMBERS];
    const int before = begin_threads();
    team made = {.size = size, .level = level_of(now->team) + 1, .outer = now->team, .members = members,
                 .strands = of_members, .shares = pages(SHARES * sizeof(share))};
    if (!made.shares) fatal("no memory");
    if (before == SERIAL) begin_region((const char *)named + 1, 0);
    run_members(&made, run, data, of_all);
    drop(&made.tasks);
    munmap(made.shares, SHARES * sizeof(share));
    end_threads(before);
}

void GOMP_parallel(void (*run)(void *), void *data, unsigned count, unsigned flags) {
    (void)flags;
    run_region(run, (const void *)run, data, count, now->strand ? now->strand->group : 0);
}

static void meet_team(int site) {
    now->site = site, now->lanes = (lanes){0};
    if (team_size() > 1) give_way(WAITS_BARRIER);
}
void GOMP_barrier(void) { meet_team(HERE); }
_Bool GOMP_barrier_cancel(void) {
    meet_team(HERE);
    return 0;
}
_Bool GOMP_cancel(int which, _Bool does) { /* as without OMP_CANCELLATION */
    (void)which, (void)does;
    return 0;
}
_Bool GOMP_cancellation_point(int which) {
    (void)which;
    return 0;
}

/* Critical sections and locks exclude only the threads of one team of `teams`: those of other teams do not wait. */
static const short one_critical, one_atomic, one_ordered; /* at even addresses, as locks are */
static const void *in_league(const void *lock) { return (const void *)((uintptr_t)lock ^ (uintptr_t)now->league << 48); }
static void take_omp(const void *lock, int site) { take(in_league(lock), site); }
static void leave_omp(const void *lock) { leave(in_league(lock)); }
void GOMP_critical_start(void) { take_omp(&one_critical, HERE); }
void GOMP_critical_end(void) { leave_omp(&one_critical); }
void GOMP_critical_name_start(void **name) { take_omp(name, HERE); }
void GOMP_critical_name_end(void **name) { leave_omp(name); }
void GOMP_atomic_start(void) { take(&one_atomic, HERE); }
void GOMP_atomic_end(void) { leave(&one_atomic); }

void omp_init_lock(void **lock) { (void)lock; }
void omp_init_lock_with_hint(void **lock, int hint) { (void)lock, (void)hint; }
void omp_destroy_lock(void **lock) { (void)lock; }
void omp_set_lock(void **lock) { take_omp(lock, HERE); }
void omp_unset_lock(void **lock) { leave_omp(lock); }
int omp_test_lock(void **lock) {
    const int is_held = meeting_at(in_league(lock))->holder != 0;
    if (is_held) wait_for_others();
    else take_omp(lock, HERE);
    return !is_held;
}
void omp_init_nest_lock(void **lock) { (void)lock; }
void omp_init_nest_lock_with_hint(void **lock, int hint) { (void)lock, (void)hint; }
void omp_destroy_nest_lock(void **lock) { (void)lock; }
void omp_set_nest_lock(void **lock) { take_omp(lock, HERE); }
void omp_unset_nest_lock(void **lock) {
    meeting *m = meeting_at(in_league(lock));
    if (--m->count <= 0) leave_omp(lock);
}
int omp_test_nest_lock(void **lock) {
    meeting *m = meeting_at(in_league(lock));
    if (m->holder && m->holder != now->strand) return 0;
    take_omp(lock, HERE);
    return m->count;
}

/* For the call of a function that works in pieces. */
int noyau_own_number(void) { return own_number(); }
int noyau_team_size(void) { return team_size(); }
void noyau_parallel(void (*run)(void *), void *data) { GOMP_parallel(run, data, 0, 0); }
