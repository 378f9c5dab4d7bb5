/* Threads of POSIX, and with them those of C++: they take turns, and are ordered by create, join, mutexes, conditions,
   barriers and atomics. The plan says in which order they run. */

static int thread_count; /* those that were created; number 0 is the program's own */
static fiber *program_fiber;
static long idle_turns;

static fiber *thread_at(int number) { return number ? fibers + number : program_fiber; }

/* Give the turn to somebody else who can run. */
static void pass_turn(int state) {
    now->state = state;
    if (idle_turns++ > 2000000) {
        found("crash", READ, last_site, 0, 0, 0, READ, "%s", "its threads wait for each other");
        stop_run();
    }
    const int count = thread_count + 1, step = plan == TURNS ? count - 1 : 1;
    int at = now == program_fiber ? 0 : now->number;
    for (int k = 0; k < count; ++k) {
        at = (at + step) % count;
        fiber *next = thread_at(at);
        if (next->state != ENDED && next != now) {
            switch_to(next);
            return;
        }
    }
}

typedef struct {
    void *(*run)(void *);
    void *argument;
} start;

static void run_thread(void *given) {
    start *s = given;
    now->result = s->run(s->argument);
    __real_free(s);
    idle_turns = 0;
    pass_turn(ENDED);
}

int pthread_create(pthread_t *made, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    (void)attributes;
    if (mode == GRID || in_team) fatal("a thread that is created within a parallel region or a grid is not supported");
    start *s = __real_malloc(sizeof *s);
    if (!s) return EAGAIN;
    *s = (start){run, argument};
    if (mode != THREADS) begin_region(__builtin_return_address(0), 0);
    program_fiber->state = RUNS, mode = THREADS;
    fiber *f = make_fiber(++thread_count, run_thread, s);
    f->strand = begin_strand(now->strand);
    *made = (pthread_t)thread_count;
    touch(made, sizeof *made, WRITE, HERE, 0);
    return 0;
}

int pthread_join(pthread_t thread, void **result) {
    if ((int)thread < 1 || (int)thread > thread_count) return ESRCH;
    fiber *f = fibers + (int)thread;
    while (f->state != ENDED) pass_turn(WAITS_THREAD);
    idle_turns = 0;
    learn(&now->strand->seen, &f->strand->seen);
    if (result) *result = f->result;
    return 0;
}

int pthread_detach(pthread_t thread) {
    (void)thread;
    return 0;
}
pthread_t pthread_self(void) { return (pthread_t)(now == program_fiber || in_team ? 0 : now->number); }
int pthread_equal(pthread_t a, pthread_t b) { return a == b; }
void pthread_exit(void *result) {
    now->result = result, idle_turns = 0;
    for (;;) pass_turn(ENDED);
}
int sched_yield(void) {
    if (mode == THREADS && !in_team) pass_turn(RUNS);
    return 0;
}
int usleep(unsigned microseconds) {
    (void)microseconds;
    return sched_yield();
}
int nanosleep(const struct timespec *a, struct timespec *b) {
    (void)a, (void)b;
    return sched_yield();
}
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *a, struct timespec *b) {
    (void)clock, (void)flags, (void)a, (void)b;
    return sched_yield();
}

/* An atomic that is read again and again may wait for another thread. */
static void may_spin(void) {
    static int reads;
    if (mode != THREADS || ++reads % 256) return;
    if (in_team) {
        if (team_size() > 1) give_way(WAITS_THREAD);
    } else if (thread_count) pass_turn(RUNS);
}

/* Wait for what another one does. */
static void wait_for_others(void) {
    if (in_team) give_way(WAITS_THREAD);
    else pass_turn(WAITS_THREAD);
}

static void lock_mutex(void *mutex, int site) {
    meeting *m = meeting_at(mutex);
    now->site = site;
    while (m->holder && m->holder != now->strand) wait_for_others();
    m->holder = now->strand, m->count += 1;
    idle_turns = 0;
    if (in_team) now->strand->locks = with_lock(now->strand->locks, mutex);
    else learn(&now->strand->seen, &m->seen);
}
static int unlock_mutex(void *mutex) {
    meeting *m = meeting_at(mutex);
    if (m->count && --m->count) return 0;
    m->holder = 0;
    if (in_team) now->strand->locks = without_lock(now->strand->locks, mutex);
    else release_at(mutex);
    return 0;
}

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
    (void)a;
    __real_memset(m, 0, sizeof *m);
    return 0;
}
int pthread_mutex_destroy(pthread_mutex_t *m) {
    (void)m;
    return 0;
}
int pthread_mutex_lock(pthread_mutex_t *m) {
    lock_mutex(m, HERE);
    return 0;
}
int pthread_mutex_trylock(pthread_mutex_t *m) {
    if (meeting_at(m)->holder) return EBUSY;
    lock_mutex(m, HERE);
    return 0;
}
int pthread_mutex_unlock(pthread_mutex_t *m) { return unlock_mutex(m); }
int pthread_spin_init(pthread_spinlock_t *m, int shared) {
    (void)shared;
    __real_memset((void *)m, 0, sizeof *m);
    return 0;
}
int pthread_spin_destroy(pthread_spinlock_t *m) {
    (void)m;
    return 0;
}
int pthread_spin_lock(pthread_spinlock_t *m) {
    lock_mutex((void *)m, HERE);
    return 0;
}
int pthread_spin_unlock(pthread_spinlock_t *m) { return unlock_mutex((void *)m); }
/* A lock for readers is one for writers here: who holds it runs alone. */
int pthread_rwlock_init(pthread_rwlock_t *m, const pthread_rwlockattr_t *a) {
    (void)a;
    __real_memset(m, 0, sizeof *m);
    return 0;
}
int pthread_rwlock_destroy(pthread_rwlock_t *m) {
    (void)m;
    return 0;
}
int pthread_rwlock_rdlock(pthread_rwlock_t *m) {
    lock_mutex(m, HERE);
    return 0;
}
int pthread_rwlock_wrlock(pthread_rwlock_t *m) {
    lock_mutex(m, HERE);
    return 0;
}
int pthread_rwlock_unlock(pthread_rwlock_t *m) { return unlock_mutex(m); }

int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a) {
    (void)c, (void)a;
    return 0;
}
int pthread_cond_destroy(pthread_cond_t *c) {
    (void)c;
    return 0;
}
/* A wait may end without a signal, as the standard allows; who waits looks again. */
int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
    const long idle = idle_turns;
    unlock_mutex(m);
    pass_turn(WAITS_THREAD);
    lock_mutex(m, HERE);
    idle_turns = idle + 1;
    acquire_at(c);
    return 0;
}
int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until) {
    (void)until;
    return pthread_cond_wait(c, m);
}
int pthread_cond_signal(pthread_cond_t *c) {
    release_at(c);
    return 0;
}
int pthread_cond_broadcast(pthread_cond_t *c) {
    release_at(c);
    return 0;
}

int pthread_barrier_init(pthread_barrier_t *b, const pthread_barrierattr_t *a, unsigned count) {
    (void)a;
    meeting *m = meeting_at(b);
    m->count = 0, m->generation = 0, m->holder = (const strand *)(uintptr_t)count;
    return 0;
}
int pthread_barrier_destroy(pthread_barrier_t *b) {
    (void)b;
    return 0;
}
int pthread_barrier_wait(pthread_barrier_t *b) {
    meeting *m = meeting_at(b);
    const int generation = m->generation;
    release_at(b);
    if (++m->count == (int)(uintptr_t)m->holder) {
        m->count = 0, m->generation += 1;
        acquire_at(b);
        return PTHREAD_BARRIER_SERIAL_THREAD;
    }
    while (m->generation == generation) pass_turn(WAITS_THREAD);
    idle_turns = 0;
    acquire_at(b);
    return 0;
}

/* What is done once: who comes while another one does it waits, and then has seen it. The state is where the program
   has it, for the next object at this address begins anew; one that throws is done again by the next who comes. */
enum { IS_NEW, IS_DONE, IS_DOING };

static int is_first(volatile char *state) {
    while (*state == IS_DOING) {
        if (mode == GRID) fatal("a thread of a grid that waits for what is done once is not supported");
        wait_for_others();
    }
    const int is_new = *state == IS_NEW;
    idle_turns = 0;
    if (mode != GRID) acquire_at((const void *)state);
    if (is_new) *state = IS_DOING;
    return is_new;
}
static void end_first(volatile char *state, char as) {
    if (mode != GRID) release_at((const void *)state);
    *state = as;
}
static void end_thrown(volatile char **state) {
    if (**state == IS_DOING) end_first(*state, IS_NEW);
}

/* What std::call_once calls lies in these, of which each thread has its own. */
extern __thread void *_ZSt15__once_callable, *_ZSt11__once_call;

int pthread_once(pthread_once_t *once, void (*run)(void)) {
    volatile char *state __attribute__((cleanup(end_thrown))) = (char *)once;
    void *const of_it = _ZSt15__once_callable, *const call = _ZSt11__once_call;
    if (is_first(state)) {
        _ZSt15__once_callable = of_it, _ZSt11__once_call = call;
        run();
        end_first(state, IS_DONE);
    }
    return 0;
}
/* A static of a function: the program looks at the first byte of its guard by itself, which is 1 when it is made. */
int __cxa_guard_acquire(char *guard) { return is_first(guard + 1); }
void __cxa_guard_release(char *guard) {
    end_first(guard + 1, IS_DONE);
    if (mode != GRID) release_at(guard);
    *guard = 1;
}
void __cxa_guard_abort(char *guard) { end_first(guard + 1, IS_NEW); }
