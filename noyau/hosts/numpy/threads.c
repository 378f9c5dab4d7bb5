/* A parallel-for for kernels: a few threads that sleep unless there is work. Before this text stand noyau.h and
   shares.h.

   One launch at a time is shared; a launch meanwhile, of another Python thread, runs alone. Workers wait for the next
   launch for a moment only, and yield, so that BLAS and other pools have the processors. To wake them costs the
   caller about 10 us, and they come after 50: a single launch is shared where it is large, one of a series where it
   is not small. A forked child has no workers and makes its own. */
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum { MOST_THREADS = 1024, LOOKS = 200 };
enum { WAKING_BYTES = 1 << 20, SERIES_NS = 200000 }; /* from here on a launch is large; and of a series if so soon */
enum { TEAM_BYTES = 131072 }; /* a team of another runtime is woken for: as much as torch splits */
enum { WORKER_STACK = 8 << 20, SPARE_BYTES = 16 << 20, STACK_SCRATCH = 4096 };

/* A worker that joins a launch counts itself as active first and looks for the launch then; the caller closes the
   launch first and waits for active workers then: so one of them sees the other, without a lock. The same holds for a worker
   that goes to sleep and a new launch. */
static struct {
    _Atomic(launch_work *) open;  /* the launch to join, or NULL */
    _Atomic uint64_t number;      /* of the launch, so that no worker joins it twice */
    atomic_int seats;             /* how many more workers may join it */
    atomic_int active;            /* workers that have joined it */
    atomic_int asleep;            /* workers that have to be woken */
    atomic_int waited_for;        /* the caller sleeps until active workers are done */
    atomic_int wanted;            /* most threads of a launch, its caller's too */
    atomic_int workers;           /* that live */
    _Atomic int64_t last_ns;      /* when a launch that could be shared ended */
    atomic_flag busy;             /* a launch has the workers */
    int failed;                   /* whether a worker could not be created */
    pthread_mutex_t lock;         /* for sleeping alone */
    pthread_cond_t wake, ended;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER,
          .wanted = 1, .busy = ATOMIC_FLAG_INIT};

enum { CHANGES_VALUES = 0xe040 }; /* flush to zero, rounding, denormals are zero */

/* Sets this thread's floating-point mode to the default; returns the former mode. */
static unsigned int use_default_floats(void) {
#if defined(__SSE2__)
    const unsigned int before = _mm_getcsr();
    if (before & CHANGES_VALUES) _mm_setcsr(before & ~(unsigned int)CHANGES_VALUES);
    return before;
#else
    return 0;
#endif
}

static void return_floats(unsigned int before) {
#if defined(__SSE2__)
    if (before & CHANGES_VALUES) _mm_setcsr(before);
#else
    (void)before;
#endif
}

/* Threads of another runtime, if they do the work instead: `run` calls a function on each of so many threads,
   its caller's among them, and returns when all are done; `most`: the number of threads that it may have now. */
static struct {
    void (*run)(void (*each)(void *), void *data, unsigned threads, unsigned flags);
    int (*most)(void);
} team;

/* Takes part in the launch that is open, if there is one with a seat. */
static void join_launch(void) {
    atomic_fetch_add(&pool.active, 1);
    launch_work *work = atomic_load(&pool.open);
    if (work && atomic_fetch_sub(&pool.seats, 1) > 0) run_shares(work);
    if (atomic_fetch_sub(&pool.active, 1) == 1 && atomic_load(&pool.waited_for)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.ended);
        pthread_mutex_unlock(&pool.lock);
    }
}

static void sleep_after(uint64_t seen) {
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.asleep, 1);
    while (atomic_load(&pool.number) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
    atomic_fetch_sub(&pool.asleep, 1);
    pthread_mutex_unlock(&pool.lock);
}

static void *worker(void *unused) {
    (void)unused;
    fesetenv(FE_DFL_ENV); /* the creator of this thread may flush denormals, or round otherwise */
    for (;;) {
        const uint64_t seen = atomic_load(&pool.number);
        join_launch();
        int looks = 0;
        while (atomic_load(&pool.number) == seen && looks++ < LOOKS) sched_yield();
        if (looks > LOOKS) sleep_after(seen);
    }
    return NULL;
}

/* Creates workers up to a number, or until that fails. Signals stay with Python's threads. */
static void make_workers(int count) {
    sigset_t all, before;
    pthread_attr_t attributes;
    if (pool.workers >= count || pool.failed || pthread_attr_init(&attributes)) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, WORKER_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < count && !pool.failed) {
        pthread_t made;
        pool.failed = pthread_create(&made, &attributes, worker, NULL) != 0;
        pool.workers += !pool.failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static void share(launch_work *work, int threads) {
    make_workers(threads - 1);
    atomic_store(&pool.seats, threads - 1);
    atomic_store(&pool.open, work);
    atomic_fetch_add(&pool.number, 1);
    const int asleep = atomic_load(&pool.asleep), missing = threads - 1 - (atomic_load(&pool.workers) - asleep);
    if (asleep && missing > 0) {
        pthread_mutex_lock(&pool.lock);
        for (int k = 0; k < missing; k++) pthread_cond_signal(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    run_shares(work);
    atomic_store(&pool.open, NULL); /* a worker that comes now finds nothing, and is not waited for */
    for (int look = 0; look < LOOKS && atomic_load(&pool.active); look++) sched_yield();
    if (!atomic_load(&pool.active)) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.waited_for, 1);
    while (atomic_load(&pool.active)) pthread_cond_wait(&pool.ended, &pool.lock);
    atomic_store(&pool.waited_for, 0);
    pthread_mutex_unlock(&pool.lock);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Runs shares on a thread of another runtime, which may treat denormals otherwise. */
static void run_as_team(void *data) {
    const unsigned int before = use_default_floats();
    run_shares(data);
    return_floats(before);
}

/* Whether a launch of so much traffic is worth its workers: they are awake, it is large, or it is of a series. */
static int is_worth_waking(double bytes) {
    if (team.run) return bytes >= TEAM_BYTES;
    if (bytes >= WAKING_BYTES || atomic_load(&pool.asleep) < atomic_load(&pool.workers)) return 1;
    const int64_t now = now_ns();
    return now - atomic_exchange_explicit(&pool.last_ns, now, memory_order_relaxed) < SERIES_NS;
}

/* The number of threads that a launch is worth: each has at least PIECE_BYTES of traffic. */
static int threads_for(int64_t extent, int64_t item_bytes) {
    const double bytes = (double)extent * (double)(item_bytes > 0 ? item_bytes : 1), worth = bytes / PIECE_BYTES;
    if (worth < 2 || !is_worth_waking(bytes)) return 1;
    int64_t most = team.most ? team.most() : atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    if (most < 2) return 1;
    if (worth < (double)most) most = (int64_t)worth;
    return (int)(most < extent ? most : extent);
}

static int32_t run_launch(const noyau_kernel *kernel, const noyau_call *call) {
    const int64_t extent = kernel->extent(call->sizes, call->launch);
    if (extent <= 0) return NOYAU_OK;
    const int64_t item_bytes = kernel->item_bytes(call->sizes, call->launch);
    const int threads = threads_for(extent, item_bytes);
    if (threads < 2 || (!team.run && atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)))
        return kernel->run(call, 0, extent);
    launch_work work;
    share_out(&work, kernel, call, extent, item_bytes, threads);
    if (team.run) return team.run(run_as_team, &work, (unsigned)threads, 0), atomic_load(&work.status);
    share(&work, threads);
    atomic_store_explicit(&pool.last_ns, now_ns(), memory_order_relaxed);
    atomic_flag_clear_explicit(&pool.busy, memory_order_release);
    return atomic_load(&work.status);
}

/* ---- scratch: one block is kept from call to call, where it is not too large ---- */

typedef struct {
    int64_t bytes;
    char padding[LINE - sizeof(int64_t)];
} block_head;

static _Atomic(block_head *) spare;

static block_head *take_block(int64_t bytes) {
    block_head *block = atomic_exchange(&spare, NULL);
    if (block && block->bytes >= bytes) return block;
    free(block);
    const size_t total = ((size_t)bytes + sizeof(block_head) + LINE - 1) / LINE * LINE;
    block = aligned_alloc(LINE, total);
    if (block) block->bytes = bytes;
    return block;
}

static void give_block(block_head *block) {
    if (block->bytes <= SPARE_BYTES) block = atomic_exchange(&spare, block);
    free(block);
}

static int32_t run_launches(const noyau_kernel *kernel, noyau_call *call) {
    int32_t status = NOYAU_OK;
    for (call->launch = 0; call->launch < kernel->launches && status == NOYAU_OK; call->launch++)
        status = run_launch(kernel, call);
    return status;
}

/* The bytes of each scratch buffer, and of all in whole lines; -1 where these are too many. */
static int64_t scratch_of(const noyau_kernel *kernel, const int64_t *sizes, int64_t *bytes) {
    int64_t total = 0;
    for (int32_t i = 0; i < kernel->scratch; i++) {
        bytes[i] = kernel->scratch_bytes(sizes, i);
        if (bytes[i] < 0 || bytes[i] > INT64_MAX / 2 - total - 2 * LINE) return -1;
        total += (bytes[i] + LINE - 1) / LINE * LINE;
    }
    return total;
}

static int32_t run_with_scratch(const noyau_kernel *kernel, noyau_call *call, void **scratch, unsigned char *memory) {
    int64_t bytes[kernel->scratch + 1];
    const int64_t total = scratch_of(kernel, call->sizes, bytes);
    if (total < 0) return NOYAU_OUT_OF_MEMORY;
    _Alignas(LINE) unsigned char small[STACK_SCRATCH];
    block_head *block = !memory && total > STACK_SCRATCH ? take_block(total) : NULL;
    if (!memory && total > STACK_SCRATCH && !block) return NOYAU_OUT_OF_MEMORY;
    unsigned char *next = memory ? memory : block ? (unsigned char *)(block + 1) : small;
    for (int32_t i = 0; i < kernel->scratch; i++) {
        scratch[i] = next;
        next += (bytes[i] + LINE - 1) / LINE * LINE;
    }
    const int32_t status = run_launches(kernel, call);
    if (block) give_block(block);
    return status;
}

/* Runs a kernel whose sizes are bound: all launches, with scratch, which `scratch` points to within the buffers, and
   which lies in `memory` where that is not NULL. The floating-point mode is the default one, whatever the caller's
   thread does with denormals and rounding. */
static int32_t noyau_run(const noyau_kernel *kernel, noyau_call *call, void **scratch, void *memory) {
    const unsigned int before = use_default_floats();
    const int32_t status =
        kernel->scratch ? run_with_scratch(kernel, call, scratch, memory) : run_launches(kernel, call);
    return_floats(before);
    return status;
}

/* ---- what the library offers ---- */

static void forget_workers(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.ended, NULL);
    atomic_store(&pool.open, NULL);
    atomic_int *counts[] = {&pool.seats, &pool.active, &pool.asleep, &pool.waited_for, &pool.workers};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) atomic_store(counts[k], 0);
    pool.failed = 0;
    atomic_flag_clear(&pool.busy);
}

/* Once, when it is loaded: a forked child has none of its parent's threads. */
NOYAU_EXPORT void noyau_threads_open(void);
void noyau_threads_open(void) { pthread_atfork(NULL, NULL, forget_workers); }

/* Sets the most threads of a launch from now on. */
NOYAU_EXPORT void noyau_threads_limit(int32_t count);
void noyau_threads_limit(int32_t count) {
    atomic_store(&pool.wanted, count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count);
}

NOYAU_EXPORT int32_t noyau_threads_wanted(void);
int32_t noyau_threads_wanted(void) { return atomic_load(&pool.wanted); }

/* The number of live workers. */
NOYAU_EXPORT int32_t noyau_threads_workers(void);
int32_t noyau_threads_workers(void) { return pool.workers; }
