/* The items of a launch, shared out among threads. Before this text stands noyau.h.

   There is a share for each thread that may come, of items next to each other in memory: a thread begins a share and
   takes piece after piece of it. Data of its former launch is then likely in its caches, and the processor can
   prefetch. A thread that finds no share to begin takes pieces of shares that are not done, so that no thread waits
   for one that woke late; where fewer threads come, they begin several shares, one after the other. */
#include <stdatomic.h>

enum { PIECE_BYTES = 32768, PIECES_A_THREAD = 32, MOST_SHARES = 64, LINE = 64 };

/* The rest of a share. Each lies in a cache line of its own. */
typedef struct {
    _Alignas(LINE) _Atomic int64_t next;
    int64_t end;
} launch_share;

typedef struct {
    const noyau_kernel *kernel;
    const noyau_call *call;
    int64_t items; /* of a piece */
    atomic_int status, begun;
    int shares;
    launch_share share[MOST_SHARES];
} launch_work;

/* Items of a piece: at least PIECE_BYTES of traffic, whole lines of cells where there are many. */
static int64_t piece_items(int64_t extent, int64_t item_bytes, int threads) {
    const int64_t least = item_bytes < PIECE_BYTES ? PIECE_BYTES / (item_bytes > 0 ? item_bytes : 1) : 1;
    const int64_t pieces = (int64_t)threads * PIECES_A_THREAD;
    int64_t items = extent / pieces + (extent % pieces != 0);
    if (items < least) items = least;
    return items < 1024 ? items : (items + LINE - 1) / LINE * LINE;
}

/* Divides the launch of `call`, of so many items of so many bytes each, among so many threads. */
static void share_out(launch_work *work, const noyau_kernel *kernel, const noyau_call *call, int64_t extent,
                      int64_t item_bytes, int threads) {
    work->kernel = kernel, work->call = call;
    work->items = piece_items(extent, item_bytes, threads);
    atomic_init(&work->status, NOYAU_OK);
    atomic_init(&work->begun, 0);
    const int64_t pieces = extent / work->items + (extent % work->items != 0);
    work->shares = threads < MOST_SHARES ? threads : MOST_SHARES;
    if (pieces < work->shares) work->shares = (int)pieces;
    for (int64_t k = 0, begin = 0; k < work->shares; k++) {
        const int64_t end = (k + 1) * pieces / work->shares * work->items;
        atomic_init(&work->share[k].next, begin);
        work->share[k].end = begin = end < extent ? end : extent;
    }
}

static void run_rest_of(launch_work *work, launch_share *share) {
    while (atomic_load_explicit(&work->status, memory_order_relaxed) == NOYAU_OK) {
        const int64_t begin = atomic_fetch_add_explicit(&share->next, work->items, memory_order_relaxed);
        if (begin >= share->end) return;
        const int64_t end = share->end - begin > work->items ? begin + work->items : share->end;
        const int status = work->kernel->run(work->call, begin, end);
        if (status != NOYAU_OK) atomic_store_explicit(&work->status, status, memory_order_relaxed);
    }
}

/* The work of each thread: shares that no thread has begun, then the rest of the others. */
static void run_shares(launch_work *work) {
    int mine;
    while ((mine = atomic_fetch_add_explicit(&work->begun, 1, memory_order_relaxed)) < work->shares)
        run_rest_of(work, &work->share[mine]);
    for (int k = 0; k < work->shares; k++) run_rest_of(work, &work->share[(mine + k) % work->shares]);
}
