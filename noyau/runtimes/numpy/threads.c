/* A parallel-for for kernels: a few threads that sleep unless there is work. Before this text stands noyau.h.

   One launch at a time is shared; who comes meanwhile, from another Python thread, runs alone. Workers look for the next
   launch for a moment only, giving way, so that BLAS and other pools beside have the processors. A forked child has no
   workers and makes its own. */
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum { PIECE_BYTES = 32768, PIECES_A_THREAD = 4, MOST_THREADS = 1024, LINE = 64, LOOKS = 200 };
enum { WORKER_STACK = 8 << 20, SPARE_BYTES = 16 << 20, STACK_SCRATCH = 4096 };

/* The work of one launch; whoever takes a piece runs the items [piece * items, ...). */
typedef struct {
    const noyau_kernel *kernel;
    const noyau_call *call;
    int64_t extent, items;
    _Atomic int64_t next;
    atomic_int status;
} launch_work;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, ended;
    launch_work *open;            /* what may be joined, or NULL */
    _Atomic uint64_t number;      /* of the launch, so that nobody joins one twice */
    atomic_int active, wanted;    /* workers inside the open launch; threads that a launch may have, its caller's too */
    int seats;                    /* how many more workers may join it */
    int workers, failed;          /* workers that live; whether one could not be made */
    atomic_flag busy;             /* somebody's launch has the workers */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER,
          .wanted = 1, .busy = ATOMIC_FLAG_INIT};

static void run_pieces(launch_work *work) {
    for (;;) {
        if (atomic_load_explicit(&work->status, memory_order_relaxed) != NOYAU_OK) return;
        const int64_t begin = work->items * atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
        if (begin >= work->extent) return;
        const int64_t end = work->extent - begin > work->items ? begin + work->items : work->extent;
        const int status = work->kernel->run(work->call, begin, end);
        if (status != NOYAU_OK) atomic_store_explicit(&work->status, status, memory_order_relaxed);
    }
}

/* Looks for a short while whether the value leaves `old`, giving way to others. */
static int leaves(const _Atomic uint64_t *value, uint64_t old) {
    for (int look = 0; look < LOOKS; look++) {
        if (atomic_load_explicit(value, memory_order_relaxed) != old) return 1;
        sched_yield();
    }
    return 0;
}

static void *worker(void *unused) {
    (void)unused;
    fesetenv(FE_DFL_ENV); /* whoever made this thread may flush denormals, or round another way */
    uint64_t seen = 0;
    for (;;) {
        leaves(&pool.number, seen);
        pthread_mutex_lock(&pool.lock);
        while (!pool.open || pool.number == seen || pool.seats == 0) {
            seen = pool.number;
            pthread_cond_wait(&pool.wake, &pool.lock);
        }
        launch_work *work = pool.open;
        seen = pool.number;
        pool.seats--;
        pool.active++;
        pthread_mutex_unlock(&pool.lock);
        run_pieces(work);
        pthread_mutex_lock(&pool.lock);
        if (--pool.active == 0) pthread_cond_signal(&pool.ended);
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

/* Makes workers until there are so many, or no more can be made. Signals stay with Python's threads. */
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
    pthread_mutex_lock(&pool.lock);
    make_workers(threads - 1);
    pool.open = work;
    pool.seats = threads - 1;
    pool.number++;
    for (int more = 1; more < threads; more++) pthread_cond_signal(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    run_pieces(work);
    pthread_mutex_lock(&pool.lock);
    pool.open = NULL; /* who wakes only now finds nothing, and is not waited for */
    pthread_mutex_unlock(&pool.lock);
    for (int look = 0; look < LOOKS && atomic_load_explicit(&pool.active, memory_order_relaxed); look++) sched_yield();
    pthread_mutex_lock(&pool.lock);
    while (pool.active) pthread_cond_wait(&pool.ended, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* How many threads a launch is worth: each has at least PIECE_BYTES of traffic. */
static int threads_for(int64_t extent, int64_t item_bytes) {
    const double worth = (double)extent * (double)(item_bytes > 0 ? item_bytes : 1) / PIECE_BYTES;
    int64_t most = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    if (worth < (double)most) most = (int64_t)worth;
    return (int)(most < extent ? most : extent);
}

static int32_t run_launch(const noyau_kernel *kernel, const noyau_call *call) {
    const int64_t extent = kernel->extent(call->sizes, call->launch);
    if (extent <= 0) return NOYAU_OK;
    const int64_t item_bytes = kernel->item_bytes(call->sizes, call->launch);
    const int threads = threads_for(extent, item_bytes);
    if (threads < 2 || atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire))
        return kernel->run(call, 0, extent);
    const int64_t least = item_bytes < PIECE_BYTES ? PIECE_BYTES / (item_bytes > 0 ? item_bytes : 1) : 1;
    int64_t items = (extent + threads * PIECES_A_THREAD - 1) / (threads * PIECES_A_THREAD);
    if (items < least) items = least;
    if (items >= 1024) items = (items + LINE - 1) / LINE * LINE;
    launch_work work = {kernel, call, extent, items, 0, NOYAU_OK};
    share(&work, threads);
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

static int32_t run_with_scratch(const noyau_kernel *kernel, noyau_call *call, void **scratch) {
    int64_t bytes[kernel->scratch + 1], total = 0;
    for (int32_t i = 0; i < kernel->scratch; i++) {
        bytes[i] = kernel->scratch_bytes(call->sizes, i);
        if (bytes[i] < 0 || bytes[i] > INT64_MAX / 2 - total - 2 * LINE) return NOYAU_OUT_OF_MEMORY;
        total += (bytes[i] + LINE - 1) / LINE * LINE;
    }
    _Alignas(LINE) unsigned char small[STACK_SCRATCH];
    block_head *block = total > STACK_SCRATCH ? take_block(total) : NULL;
    if (total > STACK_SCRATCH && !block) return NOYAU_OUT_OF_MEMORY;
    unsigned char *next = block ? (unsigned char *)(block + 1) : small;
    for (int32_t i = 0; i < kernel->scratch; i++) {
        scratch[i] = next;
        next += (bytes[i] + LINE - 1) / LINE * LINE;
    }
    const int32_t status = run_launches(kernel, call);
    if (block) give_block(block);
    return status;
}

/* Runs a kernel whose sizes are bound: all launches, with scratch, which `scratch` points to within the buffers. Floats
   are as they are by default, whatever the caller's thread does with denormals and rounding. */
static int32_t noyau_run(const noyau_kernel *kernel, noyau_call *call, void **scratch) {
#if defined(__SSE2__)
    enum { CHANGES_VALUES = 0xe040 }; /* flush to zero, rounding, denormals are zero */
    const unsigned int before = _mm_getcsr();
    if (before & CHANGES_VALUES) _mm_setcsr(before & ~(unsigned int)CHANGES_VALUES);
#endif
    const int32_t status = kernel->scratch ? run_with_scratch(kernel, call, scratch) : run_launches(kernel, call);
#if defined(__SSE2__)
    if (before & CHANGES_VALUES) _mm_setcsr(before);
#endif
    return status;
}

/* ---- what the library offers ---- */

static void forget_workers(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.ended, NULL);
    pool.open = NULL;
    pool.workers = pool.failed = 0;
    atomic_store(&pool.active, 0);
    atomic_flag_clear(&pool.busy);
}

/* Once, when it is loaded: a forked child has none of its parent's threads. */
NOYAU_EXPORT void noyau_threads_open(void);
void noyau_threads_open(void) { pthread_atfork(NULL, NULL, forget_workers); }

/* A launch has at most so many threads from now on. */
NOYAU_EXPORT void noyau_threads_limit(int32_t count);
void noyau_threads_limit(int32_t count) {
    atomic_store(&pool.wanted, count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count);
}

NOYAU_EXPORT int32_t noyau_threads_wanted(void);
int32_t noyau_threads_wanted(void) { return atomic_load(&pool.wanted); }

/* The workers that live now. */
NOYAU_EXPORT int32_t noyau_threads_workers(void);
int32_t noyau_threads_workers(void) { return pool.workers; }
