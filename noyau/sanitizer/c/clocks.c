/* Vector clocks: what each thread or task has seen of the others (FastTrack, Flanagan and Freund, 2009). */

static uint32_t strand_count = 1;
static strand *strands[1 << 16] = {0, &main_strand}; /* by owner */

static void widen(clocks *c, uint32_t count) {
    if (count <= c->count) return;
    const uint32_t wider = (count + 31) & ~31u; /* not more: widths spread from one clock to another */
    uint32_t *made = __real_malloc(2 * wider * sizeof *made);
    if (!made) fatal("no memory");
    __real_memset(made, 0, 2 * wider * sizeof *made);
    if (c->count) {
        __real_memcpy(made, c->at, c->count * sizeof *made);
        __real_memcpy(made + wider, c->sure, c->count * sizeof *made);
    }
    __real_free(c->at);
    c->at = made, c->sure = made + wider, c->count = wider;
}

static void forget(clocks *c) {
    if (c->count) __real_memset(c->at, 0, 2 * c->count * sizeof *c->at);
}

static void drop(clocks *c) {
    __real_free(c->at);
    *c = (clocks){0};
}

/* Merges a vector clock into another; `sure`: also what holds for any order of taking locks. */
static void learn_in_order(clocks *into, const clocks *from, int sure) {
    widen(into, from->count);
    for (uint32_t i = 0; i < from->count; ++i) {
        if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
        if (sure && from->sure[i] > into->sure[i]) into->sure[i] = from->sure[i];
    }
}
static void learn(clocks *into, const clocks *from) { learn_in_order(into, from, 1); }

static void tick(strand *s) {
    widen(&s->seen, s->owner + 1);
    s->seen.at[s->owner] += 1;
    s->seen.sure[s->owner] = s->seen.at[s->owner];
}

/* Numbers are few: beyond so many, a new strand may reuse the number of any task that has ended and was waited for,
   even if it has not seen that task. An owner that sees the new strand then counts as having seen the task. */
enum { MOST_OWNERS = 512 };
static strand *reserve;

/* A strand that begins after all that `parent` has seen and done. */
static strand *begin_strand(strand *parent, int kind, int number, int of) {
    strand *made = parent->spare;
    if (made) parent->spare = made->next;
    else if (reserve) made = reserve, reserve = made->next;
    else {
        if (strand_count + 1 >= 1 << 16) fatal("more than 65534 threads and tasks at a time are too many to watch");
        made = __real_malloc(sizeof *made);
        if (!made) fatal("no memory");
        *made = (strand){.owner = ++strand_count};
        strands[made->owner] = made;
    }
    *made = (strand){.owner = made->owner, .time = made->time, .kind = (int8_t)kind, .number = number, .of = of,
                     .group = parent->group, .is_final = parent->is_final};
    widen(&made->seen, made->owner + 1);
    learn(&made->seen, &parent->seen);
    made->begun = made->time + 1, made->past = made->seen.at[made->owner], made->sure_past = made->seen.sure[made->owner];
    made->seen.at[made->owner] = made->seen.sure[made->owner] = made->time;
    tick(made);
    tick(parent);
    return made;
}

static void append(strand **list, strand *more) {
    while (*list) list = &(*list)->next;
    *list = more;
}

/* Passes its number, and those that it may reuse, to a strand that has seen all of its work. That one has not seen the
   work of its own tasks: they wait among the orphans for a barrier. */
static void end_strand(strand *s, strand *by) {
    s->time = s->seen.at[s->owner];
    drop(&s->seen), drop(&s->children), drop(&s->fenced), drop(&s->met);
    append(&s->spare, by->spare);
    append(&s->ended, s->orphans);
    append(&s->ended, by->orphans);
    by->orphans = s->ended, s->next = s->spare;
    if (strand_count < MOST_OWNERS) by->spare = s;
    else append(&s->next, reserve), reserve = s;
    s->ended = s->orphans = s->spare = 0;
}

/* Ends tasks after a barrier, which all tasks precede. */
static void end_tasks(strand *s) {
    append(&s->orphans, s->ended);
    s->ended = 0;
    while (s->orphans) {
        strand *task = s->orphans;
        s->orphans = task->next;
        end_strand(task, s);
    }
}

/* The state of an address at which strands release and acquire: mutexes, atomics, dependences of tasks. `taken`: when
   the last holder took a lock; `readers`: what those who share it have done; `sets`: for dependences, those that exclude each other without an order. `releases`: in
   a grid, the owners that released here, in order, each with its number of releases then. */
typedef struct {
    uint32_t owner, number;
} handing;
typedef struct meeting {
    const void *at;
    clocks seen, readers, sets;
    const strand *holder;
    visit taken;
    int count, generation, sharers;
    handing *releases;
    int release_count, release_room;
    struct meeting *next;
} meeting;
static meeting *meetings[1 << 14];

static meeting *meeting_at(const void *at) {
    meeting **list = meetings + (((uintptr_t)at * 0x9E3779B97F4A7C15u) >> 50);
    for (meeting *m = *list; m; m = m->next)
        if (m->at == at) return m;
    meeting *made = __real_malloc(sizeof *made);
    if (!made) fatal("no memory");
    *made = (meeting){.at = at, .next = *list};
    return *list = made;
}

static void acquire_at(const void *at) { learn(&now->strand->seen, &meeting_at(at)->seen); }

/* Who holds a lock alone comes after all of its holders, who shares it after those that held it alone. */
static void acquire_lock(const void *lock) {
    acquire_at(lock);
    if (holds(now->strand->locks, lock)) learn(&now->strand->seen, &meeting_at(lock)->readers);
}

static void release_at(const void *at) {
    learn(&meeting_at(at)->seen, &now->strand->seen);
    tick(now->strand);
}

/* Gives others a turn now and then, unless work is distributed in blocks, but not at the first lock of a thread: the
   members of a team reach it in the reverse of their order. */
static void yield_turn(void);
static void let_others_pass(void) {
    static uint64_t count;
    const uint64_t mixed = ++count * 0x9E3779B97F4A7C15u;
    if (!now->strand->passes++) return;
    if (plan != BLOCKS && mixed >> (count < 1000 ? 63 : 60) == 0) yield_turn();
}

/* Locks: two accesses under a common lock do not race. A taker comes after the last holder: by chance, unless the taker
   has surely seen that the holder took it. */
static long steps; /* progress of threads that others may wait for */
static void wait_for_others(void);

static int is_held(const meeting *m, int is_shared) {
    return (m->holder && m->holder != now->strand && m->holder->on != now) || (!is_shared && m->sharers);
}

static void take_as(const void *lock, int site, int is_shared) {
    if (mode == GRID) return;
    meeting *m = meeting_at(lock);
    now->site = site;
    now->turn += TURN / 64; /* a repeated taker may wait for what another does under the lock */
    if (now->turn > TURN) yield_turn();
    else let_others_pass();
    while (mode == THREADS && is_held(m, is_shared)) wait_for_others();
    learn_in_order(&now->strand->seen, &m->seen, m->taken.owner && sees(now->strand, &m->taken, 1));
    now->strand->on = now, steps += 1, m->sharers += is_shared;
    now->strand->locks = with_lock(now->strand->locks, (const char *)lock + is_shared);
    if (is_shared) return;
    learn_in_order(&now->strand->seen, &m->readers, 0);
    m->holder = now->strand, m->count += 1, m->taken = (visit){.owner = now->strand->owner, .time = own_time()};
}
static void take(const void *lock, int site) { take_as(lock, site, 0); }

static void leave_shared(const void *lock) {
    meeting *m = meeting_at(lock);
    m->sharers -= 1, steps += 1;
    now->strand->locks = without_lock(now->strand->locks, (const char *)lock + 1);
    learn(&m->readers, &now->strand->seen);
    tick(now->strand);
}

static void leave(const void *lock) {
    if (mode == GRID) return;
    meeting *m = meeting_at(lock);
    m->holder = 0, m->count = 0, steps += 1;
    now->strand->locks = without_lock(now->strand->locks, lock);
    release_at(lock);
}
