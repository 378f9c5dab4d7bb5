/* POSIX threads, and with them those of C++: they take turns, and are ordered by create, join, mutexes, conditions,
   barriers and atomics. The plan decides in which order they run. */

enum { MOST_THREADS = 1 << 16 };
static fiber *threads[MOST_THREADS]; /* by number, from 1 on */
static fiber *program_fiber; /* none before open_run() */
static void open_run(void);
static int64_t done_before, idle_turns;

static fiber *thread_at(int number) { return number ? threads[number] : program_fiber; }

static int is_alone(void) {
    for (int i = 0; i <= thread_count; ++i)
        if (thread_at(i) != now && thread_at(i)->state != ENDED) return 0;
    return 1;
}

/* Gives the turn to another thread that can run. */
static void pass_turn(int state) {
    now->state = state;
    idle_turns = done_before == accesses + steps ? idle_turns + 1 : 0, done_before = accesses + steps;
    if (idle_turns > 2000000) stop_stuck();
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
    now->state = RUNS; /* there is no other */
}

typedef struct {
    void *(*run)(void *);
    void *argument;
} start;

static void run_thread(void *given) {
    start *s = given;
    now->result = s->run(s->argument);
    __real_free(s);
    steps += 1;
    pass_turn(ENDED);
}

/* Of glibc since 2.32: while it is set, shared pointers of C++ count their owners without atomics. */
extern char __libc_single_threaded __attribute__((weak));

int pthread_create(pthread_t *made, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    (void)attributes;
    if (!program_fiber) open_run();
    if (mode == GRID || now->runner) fatal("a thread that is created within a parallel region or a grid cannot be watched");
    if (thread_count + 1 == MOST_THREADS) fatal("more than 65535 threads are too many to watch");
    start *s = __real_malloc(sizeof *s);
    if (!s) return EAGAIN;
    if (&__libc_single_threaded) __libc_single_threaded = 0;
    *s = (start){run, argument};
    if (mode != THREADS) begin_region(__builtin_return_address(0), 0);
    begin_threads();
    program_fiber->state = RUNS;
    fiber *f = threads[thread_count + 1] = open_fiber(thread_count + 1, run_thread, s);
    thread_count += 1;
    f->strand = begin_strand(now->strand, THREAD, thread_count, 0);
    f->strand->on = f;
    *made = (pthread_t)thread_count;
    touch(made, sizeof *made, WRITE, HERE, 0);
    return 0;
}

int pthread_join(pthread_t thread, void **result) {
    if ((int)thread < 1 || (int)thread > thread_count) return ESRCH;
    fiber *f = threads[thread];
    while (f->state != ENDED) pass_turn(WAITS_THREAD);
    steps += 1;
    learn(&now->strand->seen, &f->strand->seen);
    if (result) *result = f->result;
    return 0;
}

int pthread_detach(pthread_t thread) {
    (void)thread;
    return 0;
}
pthread_t pthread_self(void) { return (pthread_t)(now->strand && now->strand->kind == THREAD ? now->strand->number : 0); }
int pthread_equal(pthread_t a, pthread_t b) { return a == b; }
void pthread_exit(void *result) {
    now->result = result, steps += 1;
    for (;;) pass_turn(ENDED);
}
int sched_yield(void) {
    yield_turn();
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

/* A thread that reads atomics again and again may wait for another thread. */
static void may_spin(void) {
    static int reads;
    if (++reads % 256 == 0) yield_turn();
}

static int is_past(clockid_t clock, struct timespec until) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec > until.tv_sec || (at.tv_sec == until.tv_sec && at.tv_nsec >= until.tv_nsec);
}

/* Locks, within a time limit if there is one, which passes in real time, so that a wait does end. */
static int lock_until(void *lock, int site, int is_shared, clockid_t clock, const struct timespec *until) {
    const meeting *m = meeting_at(lock);
    for (; until && mode == THREADS && is_held(m, is_shared); steps += 1) {
        if (is_past(clock, *until)) return ETIMEDOUT;
        yield_turn();
    }
    take_as(lock, site, is_shared);
    return 0;
}
static int lock_mutex(void *mutex, int site) { return lock_until(mutex, site, 0, 0, 0); }
static int unlock_mutex(void *mutex) {
    meeting *m = meeting_at(mutex);
    if (m->sharers && m->holder != now->strand) leave_shared(mutex);
    else if (!m->count || !--m->count) leave(mutex);
    return 0;
}
/* Takes a lock if nobody holds it, or if its holder may take it once more, or share it. */
static int try_lock(void *lock, int site, int is_shared, int is_recursive) {
    const meeting *m = meeting_at(lock);
    if ((m->holder && !(is_recursive && m->holder == now->strand)) || (!is_shared && m->sharers)) {
        yield_turn();
        return EBUSY;
    }
    return lock_until(lock, site, is_shared, 0, 0);
}

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
    int kind = PTHREAD_MUTEX_DEFAULT;
    if (a) pthread_mutexattr_gettype(a, &kind);
    __real_memset(m, 0, sizeof *m);
    m->__data.__kind = kind;
    return 0;
}
int pthread_mutex_destroy(pthread_mutex_t *m) {
    (void)m;
    return 0;
}
int pthread_mutex_lock(pthread_mutex_t *m) { return lock_mutex(m, HERE); }
int pthread_mutex_trylock(pthread_mutex_t *m) {
    return try_lock(m, HERE, 0, m->__data.__kind == PTHREAD_MUTEX_RECURSIVE);
}
int pthread_mutex_timedlock(pthread_mutex_t *m, const struct timespec *until) {
    return lock_until(m, HERE, 0, CLOCK_REALTIME, until);
}
int pthread_mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *until) {
    return lock_until(m, HERE, 0, clock, until);
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
int pthread_spin_lock(pthread_spinlock_t *m) { return lock_mutex((void *)m, HERE); }
int pthread_spin_trylock(pthread_spinlock_t *m) { return try_lock((void *)m, HERE, 0, 0); }
int pthread_spin_unlock(pthread_spinlock_t *m) { return unlock_mutex((void *)m); }
int pthread_rwlock_init(pthread_rwlock_t *m, const pthread_rwlockattr_t *a) {
    (void)a;
    __real_memset(m, 0, sizeof *m);
    return 0;
}
int pthread_rwlock_destroy(pthread_rwlock_t *m) {
    (void)m;
    return 0;
}
int pthread_rwlock_rdlock(pthread_rwlock_t *m) { return lock_until(m, HERE, 1, 0, 0); }
int pthread_rwlock_tryrdlock(pthread_rwlock_t *m) { return try_lock(m, HERE, 1, 0); }
int pthread_rwlock_timedrdlock(pthread_rwlock_t *m, const struct timespec *until) {
    return lock_until(m, HERE, 1, CLOCK_REALTIME, until);
}
int pthread_rwlock_clockrdlock(pthread_rwlock_t *m, clockid_t clock, const struct timespec *until) {
    return lock_until(m, HERE, 1, clock, until);
}
int pthread_rwlock_wrlock(pthread_rwlock_t *m) { return lock_until(m, HERE, 0, 0, 0); }
int pthread_rwlock_trywrlock(pthread_rwlock_t *m) { return try_lock(m, HERE, 0, 0); }
int pthread_rwlock_timedwrlock(pthread_rwlock_t *m, const struct timespec *until) {
    return lock_until(m, HERE, 0, CLOCK_REALTIME, until);
}
int pthread_rwlock_clockwrlock(pthread_rwlock_t *m, clockid_t clock, const struct timespec *until) {
    return lock_until(m, HERE, 0, clock, until);
}
int pthread_rwlock_unlock(pthread_rwlock_t *m) { return unlock_mutex(m); }

/* Semaphores: a wait comes after the posts before it. The value lies in the program's object. */
static int fail(int error) {
    errno = error;
    return -1;
}
static int wait_semaphore(sem_t *s, int site, clockid_t clock, const struct timespec *until) {
    volatile int *left = (volatile int *)s;
    if (mode == GRID) fatal("a semaphore in a grid cannot be watched");
    last_site = now->site = site;
    while (*left == 0) {
        if (until && is_past(clock, *until)) {
            steps += 1;
            return fail(ETIMEDOUT);
        }
        if (until) steps += 1, yield_turn();
        else if (!now->runner && (!program_fiber || is_alone())) stop_stuck();
        else wait_for_others();
    }
    *left -= 1, steps += 1;
    acquire_at(s);
    return 0;
}
int sem_init(sem_t *s, int shared, unsigned value) {
    (void)shared;
    if (value > INT32_MAX) return fail(EINVAL);
    __real_memset(s, 0, sizeof *s);
    *(volatile int *)s = (int)value;
    return 0;
}
/* Those of a name are one for all threads of the process; what another process does with them is not seen. */
typedef struct named {
    sem_t value;
    struct named *next;
    char name[];
} named;
static named *named_semaphores;
static named *semaphore_named(const char *name) {
    named *s = named_semaphores;
    while (s && strcmp(s->name, name)) s = s->next;
    return s;
}
sem_t *sem_open(const char *name, int flags, ...) {
    named *s = semaphore_named(name);
    va_list rest;
    va_start(rest, flags);
    if (flags & O_CREAT) (void)va_arg(rest, int); /* who may open it */
    const unsigned value = flags & O_CREAT ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    const int error = s ? (flags & O_CREAT && flags & O_EXCL ? EEXIST : 0) : !(flags & O_CREAT) ? ENOENT : value > INT32_MAX ? EINVAL : 0;
    if (error || (!s && !(s = __real_malloc(sizeof *s + strlen(name) + 1)))) {
        errno = error ? error : ENOMEM;
        return SEM_FAILED;
    }
    if (s == semaphore_named(name)) return &s->value;
    strcpy(s->name, name), s->next = named_semaphores, named_semaphores = s;
    sem_init(&s->value, 0, value);
    return &s->value;
}
int sem_close(sem_t *s) {
    (void)s;
    return 0;
}
int sem_unlink(const char *name) {
    named *s = semaphore_named(name);
    if (!s) return fail(ENOENT);
    *s->name = 0; /* who has it open goes on with it */
    return 0;
}
int sem_destroy(sem_t *s) {
    (void)s;
    return 0;
}
int sem_wait(sem_t *s) { return wait_semaphore(s, HERE, 0, 0); }
int sem_timedwait(sem_t *s, const struct timespec *until) { return wait_semaphore(s, HERE, CLOCK_REALTIME, until); }
int sem_clockwait(sem_t *s, clockid_t clock, const struct timespec *until) { return wait_semaphore(s, HERE, clock, until); }
int sem_trywait(sem_t *s) {
    if (*(volatile int *)s) return wait_semaphore(s, HERE, 0, 0);
    yield_turn();
    return fail(EAGAIN);
}
int sem_post(sem_t *s) {
    if (*(volatile int *)s == INT32_MAX) return fail(EOVERFLOW);
    if (mode == GRID) fatal("a semaphore in a grid cannot be watched");
    release_at(s);
    *(volatile int *)s += 1, steps += 1;
    return 0;
}
int sem_getvalue(sem_t *s, int *value) {
    touch(value, sizeof *value, WRITE, HERE, 0);
    *value = *(volatile int *)s;
    if (!*value) yield_turn();
    return 0;
}

int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a) {
    (void)c, (void)a;
    return 0;
}
int pthread_cond_destroy(pthread_cond_t *c) {
    (void)c;
    return 0;
}
/* A wait may end without a signal, as the standard allows; the waiting thread checks again. */
static int wait_condition(pthread_cond_t *c, pthread_mutex_t *m, int site, clockid_t clock, const struct timespec *until) {
    const int64_t idle = idle_turns, before = accesses;
    unlock_mutex(m);
    if (until) yield_turn(), steps += 1; /* it does end */
    else pass_turn(WAITS_THREAD);
    lock_mutex(m, site);
    if (!until && accesses == before) idle_turns = idle + 1, done_before = accesses + steps; /* a lone waiter makes no progress */
    acquire_at(c);
    return until && is_past(clock, *until) ? ETIMEDOUT : 0;
}
int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) { return wait_condition(c, m, HERE, 0, 0); }
int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until) {
    return wait_condition(c, m, HERE, CLOCK_REALTIME, until);
}
int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until) {
    return wait_condition(c, m, HERE, clock, until);
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
    while (m->generation == generation) wait_for_others();
    acquire_at(b);
    return 0;
}

/* What is done once: a thread that arrives meanwhile waits, and then has seen it. The state lies in the program's
   object, since the next object at its address begins anew; after an exception the next arrival repeats it. */
enum { IS_NEW, IS_DONE, IS_DOING };

static int is_first(volatile char *state) {
    while (*state == IS_DOING) {
        if (mode == GRID) fatal("a thread of a grid that waits for what is done once is not supported");
        wait_for_others();
    }
    const int is_new = *state == IS_NEW;
    steps += 1;
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

/* The callable of std::call_once lies in these, which each thread has for itself; without C++ nothing does. */
#ifdef NOYAU_IN_CPP
extern
#else
static
#endif
    __thread void *_ZSt15__once_callable, *_ZSt11__once_call;

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
/* A static of a function: the program itself reads the first byte of its guard, which is 1 once it is initialised. */
int __cxa_guard_acquire(char *guard) { return is_first(guard + 1); }
void __cxa_guard_release(char *guard) {
    end_first(guard + 1, IS_DONE);
    if (mode != GRID) release_at(guard);
    *guard = 1;
}
void __cxa_guard_abort(char *guard) { end_first(guard + 1, IS_NEW); }

/* Futexes, with which libstdc++ waits in std::future and in the wait of std::atomic; other calls go to the system. */
static long ask_system(long number, const long *a) {
#if defined(__x86_64__)
    register long d __asm__("r10") = a[3], e __asm__("r8") = a[4], f __asm__("r9") = a[5];
    long result = number;
    __asm__ volatile("syscall" : "+a"(result) : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(d), "r"(e), "r"(f)
                     : "rcx", "r11", "memory");
#else
    register long result __asm__("x0") = a[0], n __asm__("x8") = number, b __asm__("x1") = a[1];
    register long c __asm__("x2") = a[2], d __asm__("x3") = a[3], e __asm__("x4") = a[4], f __asm__("x5") = a[5];
    __asm__ volatile("svc 0" : "+r"(result) : "r"(n), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f) : "memory");
#endif
    if (result >= -4095 && result < 0) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* A wait without a time limit may end without a change, as the system's may; the waiting thread checks again. */
static int wait_at(const volatile uint32_t *at, uint32_t value, int operation, const struct timespec *limit) {
    const clockid_t clock = operation & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    struct timespec until = limit ? *limit : (struct timespec){0, 0};
    if (limit && (operation & FUTEX_CMD_MASK) == FUTEX_WAIT) {
        struct timespec begun;
        clock_gettime(clock, &begun);
        const long all = begun.tv_nsec + limit->tv_nsec;
        until = (struct timespec){begun.tv_sec + limit->tv_sec + all / 1000000000, all % 1000000000};
    }
    if (*at != value) return EAGAIN;
    if (!limit && !now->runner && is_alone()) stop_stuck();
    do {
        wait_for_others();
        if (limit && *at == value) {
            if (is_past(clock, until)) return ETIMEDOUT;
            steps += 1; /* it does end */
        }
    } while (limit && *at == value);
    return 0;
}

long syscall(long number, ...) {
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; ++i) a[i] = va_arg(rest, long);
    va_end(rest);
    const int operation = (int)a[1], what = operation & FUTEX_CMD_MASK;
    if (number != SYS_futex || mode == GRID || !program_fiber) return ask_system(number, a);
    if (what == FUTEX_WAKE || what == FUTEX_WAKE_BITSET) return 0; /* a waiting thread gets its turn anyway */
    if (what != FUTEX_WAIT && what != FUTEX_WAIT_BITSET) return ask_system(number, a);
    const int error = wait_at((const volatile uint32_t *)a[0], (uint32_t)a[2], operation, (const struct timespec *)a[3]);
    if (error) errno = error;
    return error ? -1 : 0;
}
