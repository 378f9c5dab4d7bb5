/* Tasks of OpenMP run where they are made, and are ordered only as taskwait, taskgroup, barriers and dependences say. */

static clocks all_tasks;

static void join_tasks(clocks *into) {
    learn(into, &all_tasks);
}

/* What the tasks of a strand did is before what it does now; their numbers may be taken by others. */
static void join_children(strand *parent) {
    learn(&parent->seen, &parent->children);
    while (parent->ended) {
        strand *child = parent->ended;
        parent->ended = child->next;
        end_strand(child);
    }
}

/* `depend`: how many, how many of them are out or inout, the addresses, as gcc lays them. */
static meeting *dependence(const void *at, const strand *parent) { /* of the tasks of one parent alone */
    return meeting_at((const void *)((uintptr_t)at ^ (uintptr_t)parent->owner << 48));
}

static void await_dependences(void **depend, const strand *parent) {
    if (!depend) return;
    if (!depend[0]) fatal("depend(mutexinoutset) and depobj are not supported");
    const uintptr_t count = (uintptr_t)depend[0], written = (uintptr_t)depend[1];
    for (uintptr_t i = 0; i < count; ++i) {
        meeting *m = dependence(depend[2 + i], parent);
        learn(&now->strand->seen, &m->seen);
        if (i < written) learn(&now->strand->seen, &m->readers);
    }
}

static void meet_dependences(void **depend, const strand *parent) {
    if (!depend) return;
    const uintptr_t count = (uintptr_t)depend[0], written = (uintptr_t)depend[1];
    for (uintptr_t i = 0; i < count; ++i) {
        meeting *m = dependence(depend[2 + i], parent);
        learn(i < written ? &m->seen : &m->readers, &now->strand->seen);
    }
}

static void run_task(void (*run)(void *), void *data, void (*copy)(void *, void *), long bytes, long align, int waits,
                     void **depend, const long *range) {
    strand *parent = now->strand;
    char *raw = __real_malloc((size_t)(bytes + align + 16));
    if (!raw) fatal("no memory");
    char *own = (char *)(((uintptr_t)raw + (uintptr_t)align) & -(uintptr_t)(align ? align : 1));
    if (copy) copy(own, data);
    else __real_memcpy(own, data, (size_t)bytes);
    if (range) __real_memcpy(own, range, 2 * sizeof *range);
    strand *task = begin_strand(parent);
    now->strand = task;
    await_dependences(depend, parent);
    run(own);
    meet_dependences(depend, parent);
    now->strand = parent;
    learn(&parent->children, &task->seen), learn(&all_tasks, &task->seen);
    if (task->group) learn(task->group, &task->seen);
    if (waits) learn(&parent->seen, &task->seen);
    task->next = parent->ended, parent->ended = task;
    __real_free(raw);
}

void GOMP_task(void (*run)(void *), void *data, void (*copy)(void *, void *), long bytes, long align, _Bool deferred,
               unsigned flags, void **depend, int priority, void *detach) {
    (void)priority, (void)detach;
    const int before = mode;
    if (mode == SERIAL) { /* outside of a region: one thread runs all */
        run_task(run, data, copy, bytes, align, 1, 0, 0);
        return;
    }
    run_task(run, data, copy, bytes, align, !deferred, flags & 8 ? depend : 0, 0);
    mode = before;
}

void GOMP_taskwait(void) { join_children(now->strand); }
void GOMP_taskwait_depend(void **depend) { await_dependences(depend, now->strand); }
void GOMP_taskyield(void) {}

void GOMP_taskgroup_start(void) {
    clocks *made = __real_malloc(sizeof *made + sizeof(void *));
    if (!made) fatal("no memory");
    *made = (clocks){0, 0};
    __real_memcpy(made + 1, &now->strand->group, sizeof(void *));
    now->strand->group = made;
}
void GOMP_taskgroup_end(void) {
    clocks *group = now->strand->group;
    if (!group) return;
    learn(&now->strand->seen, group);
    __real_memcpy(&now->strand->group, group + 1, sizeof(void *));
}

enum { GRAIN = 1 << 9, WITHOUT_GROUP = 1 << 11, REDUCES = 1 << 12, GOES_UP = 1 << 8, IF = 1 << 10 };
void GOMP_taskloop(void (*run)(void *), void *data, void (*copy)(void *, void *), long bytes, long align,
                   unsigned flags, unsigned long wished, int priority, long from, long to, long step) {
    (void)priority;
    if (flags & REDUCES) fatal("a reduction of taskloop is not supported");
    const long count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    if (count <= 0) return;
    long tasks = wished ? (long)wished : team_size() * 2;
    if (flags & GRAIN) tasks = (count + (long)wished - 1) / (wished ? (long)wished : 1);
    if (tasks > count) tasks = count;
    if (!(flags & WITHOUT_GROUP)) GOMP_taskgroup_start();
    for (long k = 0; k < tasks; ++k) {
        const long range[2] = {from + count * k / tasks * step, from + count * (k + 1) / tasks * step};
        run_task(run, data, copy, bytes, align, mode == SERIAL, 0, range);
    }
    if (!(flags & WITHOUT_GROUP)) GOMP_taskgroup_end();
}
