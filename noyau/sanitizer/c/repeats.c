/* Launches that repeat an earlier one: programs that time a kernel launch it a hundred times on the same memory. A
   launch with the kernel, arguments and shape of the last one like it is not run again if nobody has written since to
   the memory that it uses, it reads no memory that it writes, and it depends on memory alone: its results are there. If
   only other grids have written since, as when kernels are launched in turn, or if it reads what it writes, its memory
   is compared with the contents at that launch's begin, and gets the results of that launch. */

enum { MOST_ARGUMENT_BYTES = 256, MOST_USED = 16, FEW_BYTES = 1 << 16, MOST_LEFT_BYTES = 1 << 30 };
typedef struct {
    int32_t block, is_written;
    uint32_t version, host_version;
    uint64_t before, after; /* hashes of its contents when the launch began and when it ended */
    char *left;             /* its contents when it ended */
} memory_used;
struct launch_kept {
    int64_t shared, bytes, cost_ns;
    char argument[MOST_ARGUMENT_BYTES];
    uint32_t first, last; /* its rounds */
    int count;            /* of the memories that it uses; -1 if it must run again */
    int is_in_place, knows_contents;
    memory_used used[MOST_USED];
};
static int64_t left_bytes; /* of all launches */
static int hashed_count;   /* of memories that the previous launch used, hashed when this one began */
static memory_used hashed[MOST_USED];
static int64_t begun_ns;
static struct launch_kept kept[MOST_LAUNCHES]; /* by the number of like launches */
static struct launch_kept *tracked;            /* that of the running launch */

static void end_tracking(void) { is_tracking = 0; }
void noyau_not_again(void) { is_tracking = mode == GRID ? 0 : is_tracking; }

/* Records that a launch uses a memory. Writes are recorded for each launch, since they concern earlier launches. */
static void use_memory(block *b, int how) {
    if (b->kind == SHARED) return;
    if (how != READ) b->version = (uint32_t)launches;
    if (!is_tracking) return;
    if (b->kind != DEVICE && b->kind != GLOBAL) end_tracking();
    if (b->read_in != launches && b->written_in != launches) {
        if (tracked->count == MOST_USED) end_tracking();
        else tracked->used[tracked->count++] = (memory_used){.block = number_of(b)};
    }
    if (how != WRITE) b->read_in = launches;
    if (how != READ) b->written_in = launches;
    if (b->read_in == b->written_in) tracked->is_in_place = 1;
}

static void use_address(const char *at, int how, int site) {
    const int is_in_arena = at >= arena && at < arena_end, is_shared = at >= tls_block.start && at < tls_block.start + tls_block.bytes;
    if (!is_in_arena && !is_shared && (at < data_start || at >= data_end)) return;
    block *b = is_in_arena ? block_around(at) : is_shared ? &tls_block : among(globals, global_count, at);
    if (!b || at >= b->start + b->bytes) {
        end_tracking();
        return;
    }
    place *p = places + site;
    if (!is_shared) use_memory(b, how);
    if (p->launch != launches || p->start != b->start) *p = (place){.start = b->start, .end = b->start + b->bytes, .launch = launches};
    p->uses |= (int8_t)(1 << how), p->has_marks = b->is_fresh && !b->is_freed && b->kind != SHARED;
}

/* Whether no other stream has begun work since the work of `round`, which then counts as the last of its stream. */
static int is_last_work(uint32_t round) {
    work *was = 0;
    if (!is_in_work) return stream_count == 1;
    for (int i = work_count - 1; i >= 0 && !was; --i) {
        if (works[i].stream != under_way.stream) return 0;
        if (works[i].first <= round && round <= works[i].last) was = works + i;
    }
    if (was) was->number = under_way.number;
    return was != 0;
}

static int is_alike(const struct launch_kept *k, int64_t shared, const void *argument, int64_t bytes) {
    return k->count >= 0 && k->bytes && k->bytes == bytes && k->shared == shared && !memcmp(k->argument, argument, (size_t)bytes);
}

/* Whether nobody has written since, so that its results are there. */
static int is_again(const struct launch_kept *k) {
    for (int i = 0; i < k->count; ++i) {
        const block *b = block_of(k->used[i].block);
        if (!b || b->is_freed || b->version != k->used[i].version) return 0;
    }
    return !k->is_in_place && is_last_work(k->first);

}

/* A hash of a memory: four lanes of words, with invertible steps, so that no single change is lost. */
static uint64_t hash_of(const block *kept) {
    block *b = (block *)kept;
    if (b->has_hash && b->hash_version == b->version) return b->hash;
    const uint64_t odd = 0x9E3779B97F4A7C15u;
    uint64_t lane[4] = {1, 2, 3, 4}, word[4];
    int64_t at = 0;
    for (; at + (int64_t)sizeof word <= b->bytes; at += sizeof word) {
        __real_memcpy(word, b->start + at, sizeof word);
        for (int i = 0; i < 4; ++i) lane[i] = (lane[i] ^ word[i]) * odd, lane[i] ^= lane[i] >> 29;
    }
    for (; at < b->bytes; ++at) lane[0] = (lane[0] ^ (unsigned char)b->start[at]) * odd, lane[0] ^= lane[0] >> 29;
    b->hash = ((lane[0] * odd + lane[1]) * odd + lane[2]) * odd + lane[3];
    b->hash_version = b->version, b->has_hash = 1;
    return b->hash;
}

/* Whether only grids have written since, and its memories hold what they held when it began. */
static int holds_again(const struct launch_kept *k) {
    if (!k->knows_contents || !is_last_work(k->first) || shared_fill != POISON) return 0;
    for (int i = 0; i < k->count; ++i) {
        const block *b = block_of(k->used[i].block);
        if (!b || b->is_freed || b->host_version != k->used[i].host_version) return 0;
    }
    for (int i = 0; i < k->count; ++i)
        if (hash_of(block_of(k->used[i].block)) != k->used[i].before) return 0;
    return 1;
}

/* Puts the launch's results into its memories again. */
static void leave_again(struct launch_kept *k) {
    for (int i = 0; i < k->count; ++i) {
        block *b = (block *)block_of(k->used[i].block);
        if (!k->used[i].is_written) continue;
        __real_memcpy(b->start, k->used[i].left, (size_t)b->bytes);
        b->version = b->hash_version = (uint32_t)launches, b->hash = k->used[i].after, b->has_hash = 1;
    }
    for (int i = 0; i < k->count; ++i) k->used[i].version = block_of(k->used[i].block)->version;
}

static void drop_left(struct launch_kept *k) {
    for (int i = 0; i < k->count; ++i) {
        if (!k->used[i].left) continue;
        left_bytes -= block_of(k->used[i].block)->bytes, __real_free(k->used[i].left);
        k->used[i].left = 0;
    }
    k->knows_contents = 0;
}

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Hashes the memories of the last launch, if that costs less than to run it, at a byte per ns. */
static void hash_memories(const struct launch_kept *k) {
    int64_t bytes = 0;
    for (int i = 0; i < k->count; ++i) bytes += block_of(k->used[i].block)->bytes;
    hashed_count = bytes < FEW_BYTES + k->cost_ns ? k->count : 0;
    for (int i = 0; i < hashed_count; ++i) {
        const block *b = block_of(k->used[i].block);
        hashed[i] = (memory_used){.block = k->used[i].block, .before = b->is_freed ? 0 : hash_of(b)};
    }
}

/* Whether a launch need not run; otherwise its use of memory is recorded. */
static int begin_tracking(int64_t shared, const void *argument, int64_t bytes) {
    if (launch_now < 0 || is_mapping || bytes > MOST_ARGUMENT_BYTES || !bytes) return 0;
    tracked = kept + launch_now, hashed_count = 0;
    if (is_alike(tracked, shared, argument, bytes)) {
        const int is_there = is_again(tracked), is_held = !is_there && holds_again(tracked);
        if (is_held) leave_again(tracked);
        if (is_there || is_held) {
            await_grid(tracked->first, tracked->last);
            return 1;
        }
        hash_memories(tracked);
    }
    drop_left(tracked);
    *tracked = (struct launch_kept){.shared = shared, .bytes = bytes, .first = now_round};
    __real_memcpy(tracked->argument, argument, (size_t)bytes);
    is_tracking = 1, begun_ns = clock_ns();
    return 0;
}

/* Keeps the contents before and after a launch, if all of its memories were hashed when it began. */
static void keep_contents(struct launch_kept *k) {
    int64_t bytes = 0;
    for (int i = 0; i < k->count; ++i) {
        memory_used *u = k->used + i;
        const block *b = block_of(u->block);
        int at = 0;
        while (at < hashed_count && hashed[at].block != u->block) ++at;
        if (at == hashed_count) return;
        u->before = hashed[at].before, u->is_written = b->written_in == launches;
        bytes += u->is_written ? b->bytes : 0;
    }
    if (left_bytes + bytes > MOST_LEFT_BYTES) return;
    k->knows_contents = 1;
    for (int i = 0; i < k->count; ++i) {
        memory_used *u = k->used + i;
        const block *b = block_of(u->block);
        if (!u->is_written || !k->knows_contents) continue;
        if (!(u->left = __real_malloc((size_t)b->bytes + 1))) k->knows_contents = 0;
        else __real_memcpy(u->left, b->start, (size_t)b->bytes), left_bytes += b->bytes, u->after = hash_of(b);
    }
}

static void keep_launch(void) {
    if (!tracked) return;
    tracked->last = now_round, tracked->cost_ns = clock_ns() - begun_ns;
    if (!is_tracking || any_fence || is_grid_over) tracked->count = -1;
    for (int i = 0; i < tracked->count; ++i) {
        const block *b = block_of(tracked->used[i].block);
        tracked->used[i].version = b->version, tracked->used[i].host_version = b->host_version;
    }
    if (tracked->count > 0 && hashed_count) keep_contents(tracked);
    tracked = 0, is_tracking = 0;
}

/* The clock of a device. Who asks again and again, and does nothing else, waits for a time to be over: it comes soon. */
enum { MOST_TICKS = 1 << 16 };
int64_t noyau_clock(void) {
    static int64_t ticks, step, asked_at;
    static const fiber *by;
    noyau_not_again();
    step = by == now && asked_at == accesses && step < MOST_TICKS ? 2 * step : by == now && asked_at == accesses ? step : 1;
    by = now, asked_at = accesses;
    return ticks += step;
}
extern clock_t __real_clock(void);
clock_t __wrap_clock(void) { return mode == GRID ? (clock_t)noyau_clock() : __real_clock(); }

/* Output of a kernel is printed by each launch; gcc makes puts and putchar of some printf. */
static void print_in_grid(const char *words, int count) {
    noyau_not_again();
    for (int i = 0; mode == GRID && shared_fill != POISON && i < count; ++i) digest_word((unsigned char)words[i]);
}
int __wrap_printf(const char *format, ...) {
    va_list rest;
    char *words = 0;
    va_start(rest, format);
    const int count = vasprintf(&words, format, rest);
    va_end(rest);
    print_in_grid(words, count);
    if (count > 0) fwrite(words, 1, (size_t)count, stdout);
    if (count >= 0) __real_free(words);
    return count;
}
int __wrap_puts(const char *words) { return print_in_grid(words, (int)strlen(words)), __real_puts(words); }
int __wrap_putchar(int letter) { return print_in_grid(&(char){(char)letter}, 1), __real_putchar(letter); }
