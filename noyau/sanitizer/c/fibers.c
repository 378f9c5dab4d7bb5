/* Threads that take turns on one processor: each has a stack, and gives way where it must wait. */

enum { STACK_GUARD = 4096, MOST_FIBERS = 4096 };
static fiber *fibers, *free_fibers; /* those of a grid, by number; free ones of OpenMP and POSIX */
static int fiber_count, pool_count;
static char *tls_image, *main_tls, *grid_stacks;

#if defined(__x86_64__)
void noyau_switch(void **from, void *to);
__asm__(".text\n.type noyau_switch,@function\nnoyau_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size noyau_switch, .-noyau_switch\n");

static void *first_top(char *end, void (*begin)(void)) {
    void **top = (void **)((uintptr_t)end & ~(uintptr_t)15);
    *--top = 0;
    *--top = (void *)begin;
    for (int i = 0; i < 6; ++i) *--top = 0;
    return top;
}
#elif defined(__aarch64__)
void noyau_switch(void **from, void *to);
__asm__(".text\n.type noyau_switch,%function\nnoyau_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n");

static void *first_top(char *end, void (*begin)(void)) {
    void **top = (void **)((uintptr_t)end & ~(uintptr_t)15) - 20;
    for (int i = 0; i < 20; ++i) top[i] = 0;
    top[11] = (void *)begin;
    return top;
}
#else
#error "threads can be watched on x86-64 and 64-bit ARM"
#endif

/* Each thread has its own thread_local variables, except in a grid, where they are __shared__. */
static void swap_tls(fiber *from, fiber *to) {
    if (!tls_block.bytes || mode == GRID || from->own_tls == to->own_tls) return;
    __real_memcpy(from->own_tls, tls_block.start, (size_t)tls_block.bytes);
    __real_memcpy(tls_block.start, to->own_tls, (size_t)tls_block.bytes);
}

static void switch_to(fiber *next) {
    fiber *was = now;
    if (was == next) return;
    settle_pending(), settle_left_out();
    swap_tls(was, next);
    now = next, next->turn = 0;
    noyau_switch(&was->top, next->top);
}

static void end_fiber(void);

static fiber *next_on_stack(void);

/* Runs a thread, and on the same stack those of a block that follow it, up to the first one that waits. */
static void begin_fiber(void) {
    do now->run(now->argument);
    while (next_on_stack());
    end_fiber();
}

static void open_fibers(void) {
    grid_stacks = pages((size_t)MOST_FIBERS * STACK_BYTES);
    fibers = pages(MOST_FIBERS * sizeof *fibers);
    if (!grid_stacks || !fibers) fatal("there is no room for the stacks of threads");
}

/* The thread of a grid with this place among the fibers, ready to run. */
static void make_thread(int place, int number, void (*run)(void *), void *argument) {
    if (!fibers) open_fibers();
    fiber *made = fibers + place;
    if (!made->stack) mprotect(made->stack = grid_stacks + (size_t)place * STACK_BYTES, STACK_GUARD, PROT_NONE);
    char *const stack = made->stack;
    __real_memset(made, 0, offsetof(fiber, own));
    made->stack = stack, made->run = run, made->argument = argument, made->state = RUNS, made->number = number;
    if (place >= fiber_count) fiber_count = place + 1;
}

/* Runs a thread of a grid from where it waits, or from its begin. */
static void step_thread(fiber *f) {
    const int place = (int)(f - fibers); /* equal places of stacks share few sets of a cache */
    if (!f->top) f->top = first_top(f->stack + STACK_BYTES - place % 102 * 320, begin_fiber);
    switch_to(f);
}

/* A fiber with a large stack, which is watched. */
static fiber *open_fiber(int number, void (*run)(void *), void *argument) {
    fiber *made = free_fibers;
    if (made) free_fibers = made->next;
    else {
        if (!pool) {
            pool = pages(POOL * sizeof *pool);
            while (!(fiber_stacks = pages(POOL * pool_stack_bytes)) && pool_stack_bytes > LEAST_STACK_BYTES) pool_stack_bytes /= 2;
            if (!pool || !fiber_stacks) fatal("there is no room for the stacks of threads");
            fiber_stacks_end = fiber_stacks + POOL * pool_stack_bytes;
        }
        if (pool_count == POOL) fatal("more than 4096 threads at a time are too many to watch");
        made = pool + pool_count;
        made->stack = fiber_stacks + (size_t)pool_count++ * pool_stack_bytes;
        mprotect(made->stack, STACK_GUARD, PROT_NONE);
        made->memory = stack_block(made->stack, pool_stack_bytes);
    }
    clear_stack(&made->memory, made->stack + pool_stack_bytes);
    *made = (fiber){.stack = made->stack, .run = run, .argument = argument, .state = RUNS, .number = number,
                    .own_tls = made->own_tls, .memory = made->memory};
    made->top = first_top(made->stack + pool_stack_bytes, begin_fiber);
    if (tls_block.bytes) {
        if (!made->own_tls) made->own_tls = __real_malloc((size_t)tls_block.bytes);
        __real_memcpy(made->own_tls, tls_image, (size_t)tls_block.bytes);
    }
    return made;
}

static void close_fiber(fiber *f) { f->next = free_fibers, free_fibers = f; }

static fiber *scheduler = &main_fiber; /* gets the turn when a thread of a grid waits or ends */
static fiber *last_to_wait;

static void give_way(int state) {
    now->state = state, last_to_wait = now;
    switch_to(now->runner ? now->runner : scheduler);
}

static void drop_copies(void);
static void end_fiber(void) {
    drop_copies();
    give_way(ENDED);
}

/* The thread of a block that follows the running one, which ends, where it has not begun: it takes over the stack. */
static fiber *next_on_stack(void) {
    if (mode != GRID || now->number + 1 == (int)grid_threads || now[1].top || now[1].state != RUNS) return 0;
    drop_copies(), settle_pending(), settle_left_out();
    now->state = ENDED;
    return ++now;
}
