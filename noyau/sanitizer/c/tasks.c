/* OpenMP tasks run where they are made; only taskwait, taskgroup, barriers and dependences order them. */

/* Orders what the tasks of a strand did before what it does now; their numbers may be reused. */
static void join_children(strand *parent) {
    learn(&parent->seen, &parent->children);
    while (parent->ended) {
        strand *child = parent->ended;
        parent->ended = child->next;
        end_strand(child, parent);
    }
}

/* `depend`, as gcc lays it out: the count, the count of out or inout, the addresses; or 0, the count, the count of each
   kind, the addresses, and those of depend objects. */
enum { DEPENDS_IN = 1, DEPENDS_OUT = 2, DEPENDS_INOUT = 3, EXCLUDES = 4, DEPENDS_IN_SET = 5 };
static int dependence(void **depend, uintptr_t i, const void **at) {
    if (!depend) return 0;
    const uintptr_t *n = (const uintptr_t *)depend;
    if (n[0]) {
        if (i >= n[0]) return 0;
        *at = depend[2 + i];
        return i < n[1] ? DEPENDS_OUT : DEPENDS_IN;
    }
    if (i >= n[1]) return 0;
    *at = depend[5 + i];
    if (i < n[2]) return DEPENDS_OUT;
    if (i < n[2] + n[3]) return EXCLUDES;
    if (i < n[2] + n[3] + n[4]) return DEPENDS_IN;
    void *const *object = depend[5 + i];
    *at = object[0];
    return (int)(uintptr_t)object[1];
}

static const void *among_siblings(const void *at, const strand *parent) { /* only for tasks of one parent */
    return (const void *)((uintptr_t)at ^ (uintptr_t)parent->owner << 48);
}

static void await_dependences(void **depend, const strand *parent) {
    const void *at;
    for (int kind, i = 0; (kind = dependence(depend, (uintptr_t)i, &at)); ++i) {
        const void *place = among_siblings(at, parent);
        meeting *m = meeting_at(place);
        learn(&now->strand->seen, &m->seen);
        if (kind != DEPENDS_IN) learn(&now->strand->seen, &m->readers);
        if (kind < EXCLUDES) learn(&now->strand->seen, &m->sets);
        if (kind == EXCLUDES) now->strand->locks = with_lock(now->strand->locks, place);
    }
}

static void meet_dependences(void **depend, const strand *parent) {
    const void *at;
    for (int kind, i = 0; (kind = dependence(depend, (uintptr_t)i, &at)); ++i) {
        meeting *m = meeting_at(among_siblings(at, parent));
        learn(kind == DEPENDS_IN ? &m->readers : kind < EXCLUDES ? &m->seen : &m->sets, &now->strand->seen);
    }
}

/* Runs as another strand, on the same stack: other variables lie below, before and afterwards. */
static __attribute__((noinline)) void run_strand(strand *s, void (*run)(void *), void *data, void **depend) {
    strand *const parent = now->strand;
    block *stack = stack_at(__builtin_frame_address(0));
    if (stack) clear_stack(stack, __builtin_frame_address(0));
    now->strand = s, s->on = now;
    await_dependences(depend, parent);
    run(data);
    meet_dependences(depend, parent);
    now->strand = parent;
    if (stack) clear_stack(stack, __builtin_frame_address(0));
}

/* Ends a task: those that wait for it learn what it has seen. */
static void leave_task(strand *task, strand *parent, int waits) {
    learn(&parent->children, &task->seen);
    if (now->team) {
        team *t = now->team;
        while (t->size == 1 && t->outer) t = t->outer;
        learn(&t->tasks, &task->seen);
    }
    if (task->group) learn(&task->group->seen, &task->seen);
    if (waits) learn(&parent->seen, &task->seen);
    task->next = parent->ended, parent->ended = task;
}

enum { FINAL = 2, DEPENDS = 8, DETACHES = 1 << 13 }; /* flags of a task, as in gcc */
static void run_task(void (*run)(void *), void *data, void (*copy)(void *, void *), long bytes, long align, int waits,
                     unsigned flags, void **depend, const long *range) {
    strand *parent = now->strand;
    char *raw = __real_malloc((size_t)(bytes + align + 16));
    if (!raw) fatal("no memory");
    char *own = (char *)(((uintptr_t)raw + (uintptr_t)align) & -(uintptr_t)(align ? align : 1));
    if (copy) copy(own, data);
    else __real_memcpy(own, data, (size_t)bytes);
    if (range) __real_memcpy(own, range, 2 * sizeof *range);
    if (flags & DETACHES) fatal("a task that is completed by an event (detach) cannot be watched");
    const int is_included = waits || parent->is_final || mode == SERIAL;
    strand *task = begin_strand(parent, TASK, now->number, 0);
    task->is_final |= (flags & FINAL) != 0;
    run_strand(task, run, own, flags & DEPENDS ? depend : 0);
    leave_task(task, parent, is_included);
    __real_free(raw);
}

void GOMP_task(void (*run)(void *), void *data, void (*copy)(void *, void *), long bytes, long align, _Bool deferred,
               unsigned flags, void **depend, int priority, void *detach) {
    (void)priority, (void)detach;
    run_task(run, data, copy, bytes, align, !deferred, flags, depend, 0);
}

void GOMP_taskwait(void) { join_children(now->strand); }
void GOMP_taskwait_depend(void **depend) { await_dependences(depend, now->strand); }
void GOMP_taskyield(void) {}

void GOMP_taskgroup_start(void) {
    group *made = __real_malloc(sizeof *made);
    if (!made) fatal("no memory");
    *made = (group){.outer = now->strand->group, .reductions = now->strand->group ? now->strand->group->reductions : 0};
    now->strand->group = made;
}
void GOMP_taskgroup_end(void) {
    group *of = now->strand->group;
    if (!of) return;
    learn(&now->strand->seen, &of->seen);
    now->strand->group = of->outer;
    drop(&of->seen);
    __real_free(of);
}

/* Copies of tasks' reduction variables, one per thread: a list of records, each [count, bytes of a copy, align or
   address of copies, allocator, next, is first, their end], then three words a variable: address, place in a copy. */
static void make_copies(uintptr_t *data, uintptr_t *outer) {
    for (uintptr_t *d = data;; d = (uintptr_t *)d[4]) {
        const size_t bytes = d[1] * (size_t)team_size(), align = d[2] > 64 ? d[2] : 64;
        char *made = __real_malloc(bytes + align);
        if (!made) fatal("no memory");
        __real_memset(made, 0, bytes + align);
        d[2] = ((uintptr_t)made + align - 1) & -align, d[6] = d[2] + bytes, d[5] = d == data;
        if (d[4]) continue;
        d[4] = (uintptr_t)outer;
        return;
    }
}
void GOMP_taskgroup_reduction_register(uintptr_t *data) {
    group *of = now->strand->group;
    make_copies(data, of->reductions);
    of->reductions = data;
}
void GOMP_taskgroup_reduction_unregister(uintptr_t *data) { (void)data; } /* the copies stay */

/* Replaces the address of each variable, or of another copy of it, by that of this thread's copy. */
void GOMP_task_reduction_remap(size_t count, size_t with_origin, void **at) {
    uintptr_t *first = now->strand->group ? now->strand->group->reductions : 0;
    for (size_t i = 0; i < count; ++i) {
        uintptr_t *d = first, place = 0, origin = 0;
        for (int is_there = 0; d; d = (uintptr_t *)d[4]) {
            const uintptr_t address = (uintptr_t)at[i], inside = address >= d[2] && address < d[6];
            for (uintptr_t k = 0; k < d[0] && !is_there; ++k) {
                const uintptr_t *variable = d + 7 + 3 * k;
                is_there = inside ? variable[1] == (address - d[2]) % d[1] : variable[0] == address;
                if (is_there) place = variable[1], origin = variable[0];
            }
            if (is_there) break;
        }
        if (!d) fatal("a reduction of tasks that nobody began cannot be watched");
        at[i] = (void *)(d[2] + (uintptr_t)own_number() * d[1] + place);
        if (i < with_origin) at[count + i] = (void *)origin;
    }
}

unsigned GOMP_parallel_reductions(void (*run)(void *), void *data, unsigned count, unsigned flags) {
    (void)flags;
    const unsigned size = (unsigned)size_of_team(count);
    group of_all = {.outer = now->strand->group};
    team counted = {.size = (int)size, .outer = now->team}; /* the copies are for its threads */
    now->team = &counted;
    make_copies(*(uintptr_t **)data, 0);
    now->team = counted.outer;
    of_all.reductions = *(uintptr_t **)data;
    strand *parent = now->strand;
    group *before = parent->group;
    parent->group = &of_all;
    run_region(run, (const void *)run, data, size, &of_all);
    parent->group = before;
    learn(&parent->seen, &of_all.seen);
    return size;
}

/* Loops and sections whose tasks reduce: the first arrival makes the copies, for all. */
static void share_copies(share *s, uintptr_t *reductions) {
    if (!reductions) return;
    GOMP_taskgroup_start();
    if (!s->reductions) make_copies(reductions, now->strand->group->reductions), s->reductions = reductions;
    for (uintptr_t *d = reductions, *made = s->reductions; d != made && d; d = (uintptr_t *)d[4]) {
        d[2] = made[2], d[6] = made[6], d[5] = d == reductions;
        if (!d[4] || !made[4]) break;
        made = (uintptr_t *)made[4];
    }
    now->strand->group->reductions = reductions;
}
void GOMP_workshare_task_reduction_unregister(_Bool is_cancelled) {
    GOMP_taskgroup_end();
    if (!is_cancelled) meet_team(HERE);
}
static _Bool start_general(int64_t from, int64_t to, int64_t step, long schedule, int64_t wished, int64_t *a, int64_t *b,
                           uintptr_t *reductions, void **memory) {
    const int kind = (int)(schedule & 7);
    share *s = kind == 0 ? start_loop(from, to, step, OPEN_CHUNK, plan)
               : kind == 1 ? start_loop(from, to, step, wished, wished > 0 ? TURNS : BLOCKS)
                           : start_loop(from, to, step, wished > 0 ? wished : 1, OPEN_KIND);
    share_copies(s, reductions);
    if (memory) {
        const size_t bytes = (size_t)(uintptr_t)*memory;
        if (!s->memory) s->memory = __real_malloc(bytes + 64), __real_memset(s->memory, 0, bytes + 64);
        *memory = (void *)(((uintptr_t)s->memory + 63) & ~(uintptr_t)63);
    }
    return !a || next_piece(a, b);
}
_Bool GOMP_loop_start(long from, long to, long step, long schedule, long wished, long *a, long *b, uintptr_t *reductions,
                      void **memory) {
    return start_general(from, to, step, schedule, wished, (int64_t *)a, (int64_t *)b, reductions, memory);
}
unsigned GOMP_sections2_start(unsigned count, uintptr_t *reductions, void **memory) {
    start_general(1, (int64_t)count + 1, 1, 2, 1, 0, 0, reductions, memory);
    return GOMP_sections_next();
}
void GOMP_scope_start(uintptr_t *reductions) { share_copies(next_share(), reductions); }

enum { GRAIN = 1 << 9, WITHOUT_GROUP = 1 << 11, REDUCES = 1 << 12, GOES_UP = 1 << 8, IF = 1 << 10 };
void GOMP_taskloop(void (*run)(void *), void *data, void (*copy)(void *, void *), long bytes, long align,
                   unsigned flags, unsigned long wished, int priority, long from, long to, long step) {
    (void)priority;
    const long count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    if (count <= 0) return;
    long tasks = wished ? (long)wished : team_size() * 2;
    if (flags & GRAIN) tasks = (count + (long)wished - 1) / (wished ? (long)wished : 1);
    if (tasks > count) tasks = count;
    if (!(flags & WITHOUT_GROUP)) GOMP_taskgroup_start();
    if (flags & REDUCES) GOMP_taskgroup_reduction_register(((uintptr_t **)data)[2]);
    for (long k = 0; k < tasks; ++k) {
        const long range[2] = {from + count * k / tasks * step, from + count * (k + 1) / tasks * step};
        run_task(run, data, copy, bytes, align, !(flags & IF), flags & FINAL, 0, range);
    }
    if (!(flags & WITHOUT_GROUP)) GOMP_taskgroup_end();
}
void GOMP_taskloop_ull(void (*run)(void *), void *data, void (*copy)(void *, void *), long bytes, long align,
                       unsigned flags, unsigned long wished, int priority, ull from, ull to, ull step) {
    GOMP_taskloop(run, data, copy, bytes, align, flags, wished, priority, (long)from, (long)to, (long)step);
}
