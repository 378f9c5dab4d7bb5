/* Vector clocks: what each thread or task has seen of the others (FastTrack, Flanagan and Freund, 2009). */

static uint32_t strand_count = 1;
static strand *spare[1 << 16];
static int spare_count;

static void widen(clocks *c, uint32_t count) {
    if (count <= c->count) return;
    const uint32_t wider = (count + 31) & ~31u; /* no more: counts spread from one to another */
    uint32_t *made = __real_malloc(wider * sizeof *made);
    if (!made) fatal("no memory");
    __real_memset(made, 0, wider * sizeof *made);
    if (c->count) __real_memcpy(made, c->at, c->count * sizeof *made);
    __real_free(c->at);
    c->at = made, c->count = wider;
}

static void learn(clocks *into, const clocks *from) {
    widen(into, from->count);
    for (uint32_t i = 0; i < from->count; ++i)
        if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
}

static void forget(clocks *c) {
    if (c->count) __real_memset(c->at, 0, c->count * sizeof *c->at);
}

static void tick(strand *s) {
    widen(&s->seen, s->owner + 1);
    s->seen.at[s->owner] += 1;
}

/* A strand that begins after all that `parent` has seen and done. */
static strand *begin_strand(strand *parent) {
    strand *made;
    if (spare_count) made = spare[--spare_count];
    else {
        if (strand_count + 1 >= 1 << 16) fatal("more than 65534 threads and tasks are too many to watch");
        made = __real_malloc(sizeof *made);
        if (!made) fatal("no memory");
        *made = (strand){.owner = ++strand_count};
    }
    made->locks = 0, made->ended = made->next = 0, made->group = parent->group;
    forget(&made->children);
    widen(&made->seen, made->owner + 1);
    learn(&made->seen, &parent->seen);
    tick(made);
    tick(parent);
    return made;
}

/* Its number is used again; what it did is seen by the one that takes it then. */
static void end_strand(strand *s) {
    if (spare_count < 1 << 16) spare[spare_count++] = s;
}

/* What is released at an address, and acquired there: mutexes, atomics, dependences of tasks. */
typedef struct meeting {
    const void *at;
    clocks seen, readers;
    const strand *holder;
    int count, generation;
    struct meeting *next;
} meeting;
static meeting *meetings[1024];

static meeting *meeting_at(const void *at) {
    meeting **list = meetings + ((uintptr_t)at >> 3) % 1024;
    for (meeting *m = *list; m; m = m->next)
        if (m->at == at) return m;
    meeting *made = __real_malloc(sizeof *made);
    if (!made) fatal("no memory");
    *made = (meeting){.at = at, .next = *list};
    return *list = made;
}

static void acquire_at(const void *at) { learn(&now->strand->seen, &meeting_at(at)->seen); }

static void release_at(const void *at) {
    learn(&meeting_at(at)->seen, &now->strand->seen);
    tick(now->strand);
}
