/* Asynchronous copies of a thread: until it has waited, their destination holds nothing. */
typedef struct copy {
    struct copy *next;
    char *to;
    const char *from;
    int64_t bytes, given; /* zeros follow the given bytes */
    const phase_barrier *barrier; /* the barrier that reports its end, else 0 */
    uint64_t phase;
    uint32_t group;
    int32_t site;
} copy;
static uint32_t copies_open;

static void write_copy(char *to, const char *from, int64_t bytes, int64_t given) {
    __real_memmove(to, from, (size_t)given);
    __real_memset(to + given, 0, (size_t)(bytes - given));
}

static void start_copy(void *to, const void *from, int64_t bytes, int64_t given, const phase_barrier *barrier, int site) {
    touch_range(from, given, READ, site);
    touch_range(to, bytes, WRITE, site);
    copy *made = mode == GRID ? __real_malloc(sizeof *made) : 0;
    if (!made) {
        write_copy(to, from, bytes, given);
        return;
    }
    *made = (copy){0, to, from, bytes, given, barrier, barrier ? barrier->phase : 0, now->copy_group, site};
    if (now->copies) now->last_copy->next = made;
    else now->copies = made;
    now->last_copy = made, copies_open += 1;
    __real_memset(to, POISON, (size_t)bytes);
}

void noyau_copy_begin(void *to, const void *from, int64_t bytes, int64_t zeros, const void *pc) {
    start_copy(to, from, bytes, zeros < 0 || zeros > bytes ? 0 : bytes - zeros, 0, site_of(pc));
}

void noyau_copy_until(void *to, const void *from, int64_t bytes, const phase_barrier *barrier, const void *pc) {
    start_copy(to, from, bytes, bytes, barrier, site_of(pc));
}

void noyau_copy_commit(void) { now->copy_group += 1; }

/* Finishes copies of a thread: those of this barrier, if their phase is over, as if written at their start; without a
   barrier, those of all groups but the last `left`, as if the thread wrote them now. */
static void finish_copies(fiber *f, const phase_barrier *barrier, unsigned left) {
    copy **at = &f->copies;
    for (copy *c = *at; c; c = *at) {
        if (c->barrier != barrier || (barrier ? c->phase == barrier->phase : c->group + left >= f->copy_group)) {
            f->last_copy = c, at = &c->next;
            continue;
        }
        if (!barrier) touch_range(c->to, c->bytes, WRITE, c->site);
        write_copy(c->to, c->from, c->bytes, c->given);
        *at = c->next, copies_open -= 1;
        __real_free(c);
    }
}

void noyau_copy_wait(unsigned left) { finish_copies(now, 0, left); }

static void end_phase(const phase_barrier *barrier) {
    for (int i = 0; i < fiber_count && copies_open; ++i) finish_copies(fibers + i, barrier, 0);
}

/* Drops the copies that an ending thread has not waited for, unless a barrier reports them to others. */
static void drop_copies(void) {
    for (copy *c = now->copies; c; c = now->copies) {
        if (c->barrier) write_copy(c->to, c->from, c->bytes, c->given);
        now->copies = c->next, copies_open -= 1, __real_free(c);
    }
}

/* Whether a copy to a cell that is read is still under way, which is a finding. */
static int is_being_copied(const block *b, int64_t offset, int how, int site) {
    const char *at = b->start + offset;
    for (int i = 0; i < fiber_count; ++i)
        for (const copy *c = fibers[i].state == ENDED ? 0 : fibers[i].copies; c; c = c->next) {
            if (at < c->to || at >= c->to + c->bytes) continue;
            const visit who = {grid_block * grid_threads + (uint32_t)fibers[i].number + 1, 0, (uint16_t)c->site, 0};
            found("uninitialised", how, site, b, offset, &who, WRITE, "%s", "copied");
            return 1;
        }
    return 0;
}
