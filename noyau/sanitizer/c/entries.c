/* The functions that -fsanitize=thread calls: before each access, and in place of each atomic. */

/* A place in the program, as a number of its return address. */
static struct {
    const void *pc;
    int number;
} site_table[1 << 17];
static const void *sites[MOST_SITES];
static int site_count = 1; /* 0 is nowhere */

static int new_site(const void *pc, size_t at) {
    while (site_table[at].pc && site_table[at].pc != pc) at = (at + 1) & ((1 << 17) - 1);
    if (!site_table[at].pc) {
        if (site_count == MOST_SITES) return 0;
        site_table[at].pc = pc, sites[site_count] = pc, site_table[at].number = site_count++;
    }
    return site_table[at].number;
}
static inline int site_of(const void *pc) {
    const size_t at = ((uintptr_t)pc * 0x9E3779B97F4A7C15u) >> 47;
    return site_table[at].pc == pc ? site_table[at].number : new_site(pc, at);
}

void __tsan_init(void) {}
void __tsan_func_entry(void *pc) { (void)pc; }
void __tsan_func_exit(void) { now->exit_site = mode == GRID ? HERE : 0; }

static void touch_volatile(void *at, int bytes, int how, int site);
#define MISALIGNED(n) "an access of " #n " bytes at an address that is not a multiple of " #n
/* A GPU ends a grid at an access whose address is not a multiple of its bytes. */
static void ask_alignment(const void *at, unsigned bytes, int how, int site) {
    const block *b = mode == GRID && (uintptr_t)at & (bytes - 1) ? among(blocks, block_count, at) : 0;
    if (b) found("crash", how, site, b, (const char *)at - b->start, 0, 0, "%s", bytes == 16 ? MISALIGNED(16) : bytes == 8
                 ? MISALIGNED(8) : bytes == 4 ? MISALIGNED(4) : MISALIGNED(2));
}
static inline void touch_whole(const void *at, int bytes, int how, int site) {
    touch(at, bytes, how, site, 1);
    if ((uintptr_t)at & ((unsigned)bytes - 1)) ask_alignment(at, (unsigned)bytes, how, site);
}
/* The function that -fsanitize=alignment calls for a pointer less aligned than its type (GCC 8 and later). A vector
   that gcc reads part by part is one access of a GPU; for `p->x` (the kinds from 3 on) a GPU reads the part alone. */
typedef struct {
    const char *file;
    uint32_t line, column;
    const void *type;
    unsigned char log_align, kind;
} pointer_check;
void __ubsan_handle_type_mismatch_v1(const pointer_check *check, const void *at) {
    if (check->kind < 3 && check->log_align < 5) ask_alignment(at, 1u << check->log_align, check->kind == 1 ? WRITE : READ, HERE);
}
#define PLAIN(n)                                                                          \
    void __tsan_read##n(void *at) { touch_whole(at, n, READ, HERE); }                     \
    void __tsan_write##n(void *at) { touch_whole(at, n, WRITE, HERE); }                   \
    void __tsan_unaligned_read##n(void *at) { touch(at, n, READ, HERE, 1); }              \
    void __tsan_unaligned_write##n(void *at) { touch(at, n, WRITE, HERE, 1); }            \
    void __tsan_volatile_read##n(void *at) { touch_volatile(at, n, READ, HERE); }         \
    void __tsan_volatile_write##n(void *at) { touch_volatile(at, n, WRITE, HERE); }       \
    void __tsan_unaligned_volatile_read##n(void *at) { touch(at, n, READ, HERE, 1); }     \
    void __tsan_unaligned_volatile_write##n(void *at) { touch(at, n, WRITE, HERE, 1); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void *at, size_t bytes) { copy_value(at, (int64_t)bytes, HERE); }
void __tsan_write_range(void *at, size_t bytes) { touch_range(at, (int64_t)bytes, WRITE, HERE); }
void __tsan_vptr_update(void **at, void *to) { (void)to, touch(at, 8, WRITE, HERE, 1); }
void __tsan_vptr_read(void **at) { touch(at, 8, READ, HERE, 1); }

static void may_spin(void);

/* Atomics. The orders are those of C: RELAXED 0 ... SEQ_CST 5. */
static int acquires(int order) { return order == 1 || order == 2 || order == 4 || order == 5; }
static int releases(int order) { return order >= 3; }

static void meet(const volatile void *at, int order, int reads, int writes) {
    if (mode != THREADS) return;
    strand *s = now->strand;
    meeting *m = meeting_at((const void *)at);
    if (reads) learn(acquires(order) ? &s->seen : &s->met, &m->seen); /* a fence turns a relaxed one into an acquire */
    if (writes && releases(order)) release_at((const void *)at);
    else if (writes) learn(&m->seen, &s->fenced);
}
static void fence(int order) {
    if (mode != THREADS) return;
    strand *s = now->strand;
    if (order != 3) learn(&s->seen, &s->met);
    if (order >= 3) learn(&s->fenced, &s->seen), tick(s);
}
#define ATOMICS(bits, type)                                                                              \
    type __tsan_atomic##bits##_load(const volatile type *at, int order) {                                \
        may_spin();                                                                                      \
        touch((const void *)at, sizeof *at, ATOMIC, HERE, 1), meet(at, order, 1, 0);              \
        return __atomic_load_n(at, 5);                                                                   \
    }                                                                                                    \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order) {                         \
        touch((const void *)at, sizeof *at, ATOMIC, HERE, 0), meet(at, order, 0, 1);              \
        __atomic_store_n(at, value, 5);                                                                  \
    }                                                                                                    \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order) {                      \
        touch((const void *)at, sizeof *at, ATOMIC, HERE, 0), meet(at, order, 1, 1); /* may drop the old value */ \
        return __atomic_exchange_n(at, value, 5);                                                        \
    }                                                                                                    \
    static int swap##bits(volatile type *at, type *was, type value, int order, int site) {               \
        may_spin(), let_others_pass();                                                                   \
        is_swap = 1, prove_guesses((const void *)at);                                                    \
        touch((const void *)at, sizeof *at, ATOMIC, site, 1), meet(at, order, 1, 1); \
        is_swap = 0;                                                                                     \
        return __atomic_compare_exchange_n(at, was, value, 0, 5, 5);                                     \
    }                                                                                                    \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *was, type value, int order, int no) { \
        (void)no;                                                                                        \
        return swap##bits(at, was, value, order, HERE);                                                  \
    }                                                                                                    \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type *at, type *was, type value, int order, int no) { \
        (void)no;                                                                                        \
        return swap##bits(at, was, value, order, HERE);                                                  \
    }                                                                                                    \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type was, type value, int order, int no) { \
        (void)no, swap##bits(at, &was, value, order, HERE);                                              \
        return was;                                                                                      \
    }
#define FETCH(bits, type, name)                                                                          \
    type __tsan_atomic##bits##_fetch_##name(volatile type *at, type value, int order) {                  \
        let_others_pass();                                                                               \
        touch((const void *)at, sizeof *at, ATOMIC, HERE, 1), meet(at, order, 1, 1); \
        return __atomic_fetch_##name(at, value, 5);                                                      \
    }
#define WIDTH(bits, type)                                                                                \
    ATOMICS(bits, type)                                                                                  \
    FETCH(bits, type, add) FETCH(bits, type, sub) FETCH(bits, type, and) FETCH(bits, type, or)           \
    FETCH(bits, type, xor) FETCH(bits, type, nand)
WIDTH(8, uint8_t)
WIDTH(16, uint16_t)
WIDTH(32, uint32_t)
WIDTH(64, uint64_t)
void __tsan_atomic_thread_fence(int order) { fence(order); }
void __tsan_atomic_signal_fence(int order) { (void)order; }
