/* The runtime that watches a program in C, C++ or CUDA C++: every access reaches it through the calls that
   -fsanitize=thread inserts, and the threads of OpenMP, of pthreads and of CUDA run one after the other.

   The files are one text: runtime.h, cells.c, lanes.c, memory.c, fibers.c, clocks.c, entries.c, teams.c, loops.c,
   tasks.c, target.c, openmp.c, threads.c, cuda.c, copies.c, device.c, streams.c, grids.c, repeats.c, main.c. They are
   linked with the object of the user's file, which is built unchanged. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* These functions replace those of other libraries, so they must be visible to them. */
#pragma GCC visibility push(default)

enum { MOST_SITES = 65535, MOST_FOUND = 256, WARP = 32, STACK_BYTES = 1 << 18, MAIN_STACK_BYTES = 1 << 23 };
enum { READ = 0, WRITE = 1, ATOMIC = 2 };                                     /* how a cell is touched */
enum { SERIAL, THREADS, GRID };                                               /* what runs concurrently */
enum { ARGUMENT, HEAP, DEVICE, GLOBAL, SHARED, STACK };                       /* the kind of a block of memory */
enum { NEVER = 0, RUNS = 1, WAITS_BARRIER = 2, WAITS_WARP = 3, WAITS_THREAD = 4, WAITS_ACTIVE = 5, ENDED = 6 };
enum { WAITS_GRID = 7, WAITS_PHASE = 8 };

/* An access to a cell. Owners count from 1. `time`: the owner's clock, in a grid the barriers and syncwarps that it has
   passed; `locks`: the set of locks that it held, in a grid the number of its releases by a fence and an atomic. */
typedef struct {
    uint32_t owner, time;
    uint16_t site, locks;
} visit;
struct meeting;

/* `round`: the region in which the other members are valid, and the flags. */
enum { IS_SET = 1, IS_WRITTEN = 2, FLAGS = 3 };
#define IS_PRIVATE (UINT32_MAX - FLAGS) /* a round: of a private variable without a value */
#define BY_COPY UINT32_MAX /* an owner: a copy between the host and a device */
typedef struct {
    visit write, reads[2], atomics[2];
    uint32_t round;
} cell;

typedef struct {
    char *start;
    int64_t bytes;
    cell *cells;
    int32_t shift;    /* a cell has 1 << shift bytes; -1 before the first access */
    int32_t unit;     /* bytes of an element, 0 if unknown */
    int32_t gap;      /* of a global: bytes behind it that belong to no object */
    int8_t kind, is_fresh, is_freed, is_output;
    int8_t is_mapped, is_of_device; /* a grid may touch it; the host may not */
    int32_t site;     /* where it was allocated */
    int32_t launch, launch_number; /* the last one that touched it; the number of its like, from 1 */
    int32_t read_in, written_in;   /* the last tracked launches that read and that wrote it */
    uint32_t version, host_version; /* changes with each write; with each write outside of grids */
    uint32_t hash_version;          /* the version that `hash` belongs to, if there is one */
    int32_t has_hash;
    uint64_t hash;                  /* of its contents */
    int64_t widest;   /* the most bytes that unwatched code wrote at once */
    int64_t fresh_from; /* where the bytes begin that were not written when it was allocated */
    int64_t low;      /* of a stack: its lowest byte that was touched since it was cleared, from its start */
    char name[80];
} block;

typedef struct {
    char kind[20];
    int32_t how, other_how, site, other_site, block;
    int32_t reach; /* of a race in a grid: 0 within a warp, 1 within a block, 2 between blocks, 3 of other sides */
    uint32_t owner, other_owner;
    int64_t offset, count, changed, access;
    int32_t launch; /* -1 for the host */
    char words[160];
} finding;

/* A vector clock: what an owner has seen of each other owner's clock; `sure`: without what follows only from the order
   in which locks were taken. */
typedef struct {
    uint32_t count, *at, *sure;
} clocks;

/* A taskgroup: what its tasks have seen, and their copies of reduction variables. */
typedef struct group {
    clocks seen;
    struct group *outer;
    uintptr_t *reductions;
} group;

/* A strand runs by itself: a thread, a task, a team of `teams`. */
enum { MAIN, THREAD, MEMBER, TASK, LEAGUE };
typedef struct strand {
    uint32_t owner, time;  /* its clock when it ended */
    uint32_t begun, past, sure_past; /* its clock when it began, and what it knew of earlier holders of its number */
    uint16_t locks;
    int8_t kind, is_final;
    uint32_t passes;       /* locks and atomics that it reached */
    int32_t number, of;    /* of how many */
    clocks seen, children; /* what its tasks that have ended have seen */
    clocks fenced, met;    /* what it had seen at its last fence; what it met by relaxed atomics since */
    struct strand *ended, *orphans, *spare, *next; /* its tasks; theirs; strands whose numbers it may reuse */
    group *group;
    struct fiber *on;
} strand;

/* A loop, sections or single that a team shares. `given`: in an ordered loop, how many pieces are done; `counts`: the
   iterations of each loop of a doacross nest. */
typedef struct {
    int64_t from, to, step, chunk, counts[8];
    int kind, given, arrived, dims;
    uint32_t number;
    uintptr_t *reductions;
    void *copied, *memory;
} share;

/* The threads of a region of OpenMP. */
typedef struct team {
    int size, level;
    struct fiber **members;
    strand **strands;
    share *shares;
    struct team *outer;
    clocks tasks; /* what tasks that have ended have seen */
} team;

/* The simd loop of a thread: its number, how many iterations run at a time, the current one from 1, its places. */
typedef struct {
    uint32_t loop, most, iteration;
    int32_t places;
} lanes;

/* A fiber: a thread that runs on a stack. A thread of a grid has only the first part, up to `own`. */
typedef struct fiber {
    void *top;          /* its stack pointer while another runs; none before it has begun */
    char *stack;
    void (*run)(void *);
    void *argument, *result;
    strand *strand;
    int32_t state, number, site, exit_site;
    uint32_t time, mask, gone, fenced;
    uint64_t value, answer;
    int32_t lane, operation, extra, touched;
    struct fiber *runner, *next; /* its scheduler, for a member of a team; the next free fiber */
    int32_t turn;                /* accesses since it got the turn */
    lanes lanes;
    const void *spins_at;        /* in a grid: what it last read by an atomic, and how often */
    int32_t spins, is_spinning;
    uint32_t releases;           /* in a grid: how often it reached an atomic behind a fence */
    struct {
        const struct meeting *at;
        int count;
    } met[4];                    /* the last atomics that it reached, and how many had released there before */
    uint32_t met_next, copy_group;
    struct copy *copies, *last_copy; /* in a grid: those that it has not waited for, the oldest first */
    share own;                   /* the loop that it runs in a team of one */
    char *own_tls;
    team *team;
    int32_t region_step;         /* the worksharing constructs that it has met */
    int32_t league, teams, team_number; /* of `teams`: those within exclude each other */
    char *frame;                 /* of the target region that it runs */
    int64_t chunk;
    block memory;                /* its stack */
} fiber;

static int mode = SERIAL;
static uint32_t now_round = 1 << 2, shared_round = 1 << 2;
static strand main_strand = {.owner = 1};
static fiber main_fiber = {.strand = &main_strand, .state = RUNS}, *now = &main_fiber; /* before main(), constructors */
static int64_t accesses;
enum { BLOCKS, TURNS, DRAWN, ANEW }; /* distribution of work without a schedule; ANEW: in turns, new in each loop */
static int plan;
static int last_site, is_program; /* a whole program, with its own main() */
static char has_accessed[MOST_SITES]; /* by site */
static int launch_now = -1, awaited_count, is_of_host, is_in_work;
static int shared_fill = 0xCB; /* the bytes of shared memory that nobody has set; other ones show what depends on them */
static uint64_t digest;        /* of a launch with other ones: its lines, their addresses, what it prints and leaves */
static inline void digest_word(uint64_t word) { digest = (digest ^ word) * 0x9E3779B97F4A7C15u, digest ^= digest >> 29; }

static inline int site_of(const void *pc);
static void found(const char *kind, int how, int site, const block *b, int64_t offset, const visit *other,
                  int other_how, const char *format, ...);
static void stop_run(void);
static _Noreturn void refuse(const char *what, int site);
static void switch_to(fiber *next);
static void fatal(const char *words);
static void *pages(size_t bytes);
extern void *__real_malloc(size_t);
extern void __real_free(void *);
extern void *__real_memcpy(void *, const void *, size_t);
extern void *__real_memmove(void *, const void *, size_t);
extern void *__real_memset(void *, int, size_t);
extern int __real_puts(const char *), __real_putchar(int);
#define HERE site_of(__builtin_return_address(0))
