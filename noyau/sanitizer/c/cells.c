/* The shadow: two accesses to a cell conflict if their owners differ, at least one is a plain write, and nothing orders
   them. Two readers, and two atomics, are kept, so that one of them has another owner than the current access. */

static uint32_t grid_block, grid_threads = 1; /* the running block of a grid; the threads of a block */

/* Sets of locks, by number; number 0 is the empty set. `set_places`: numbers by the hash of their locks, 0 for none. */
enum { MOST_SETS = 1 << 16, PLACE_BITS = 17 };
typedef struct {
    const void **locks;
    int count;
} lock_set;
static lock_set lock_sets[MOST_SETS];
static uint16_t set_places[1 << PLACE_BITS];
static int lock_set_count = 1;

/* The number of a set of locks, whose memory it takes over. */
static uint16_t set_number(const void **locks, int count) {
    const uint32_t last = (1 << PLACE_BITS) - 1;
    uint64_t hash = 0;
    for (int i = 0; i < count; ++i) hash = (hash ^ (uintptr_t)locks[i]) * 0x9E3779B97F4A7C15u;
    uint32_t at = (uint32_t)(hash >> (64 - PLACE_BITS));
    for (; count && set_places[at]; at = (at + 1) & last) {
        const lock_set *known = lock_sets + set_places[at];
        if (known->count == count && !memcmp(known->locks, locks, (size_t)count * sizeof *locks)) break;
    }
    if (!count || set_places[at]) {
        __real_free(locks);
        return count ? set_places[at] : 0;
    }
    if (lock_set_count == MOST_SETS) fatal("more than 65535 sets of locks that threads hold are too many to watch");
    lock_sets[lock_set_count] = (lock_set){locks, count};
    return set_places[at] = (uint16_t)lock_set_count++;
}

/* The locks of a set, with room for one more. */
static const void **locks_of(uint16_t set) {
    const int count = lock_sets[set].count;
    const void **made = __real_malloc(((size_t)count + 1) * sizeof *made);
    if (!made) fatal("no memory");
    if (count) __real_memcpy(made, lock_sets[set].locks, (size_t)count * sizeof *made);
    return made;
}

static uint16_t with_lock(uint16_t set, const void *lock) {
    const void **locks = locks_of(set);
    locks[lock_sets[set].count] = lock;
    return set_number(locks, lock_sets[set].count + 1);
}

static uint16_t without_lock(uint16_t set, const void *lock) {
    const void **locks = locks_of(set);
    int kept = 0, dropped = 0;
    for (int i = 0; i < lock_sets[set].count; ++i) {
        if (locks[i] == lock && !dropped) dropped = 1;
        else locks[kept++] = locks[i];
    }
    return set_number(locks, kept);
}

static int holds(uint16_t set, const void *lock) {
    for (int i = 0; i < lock_sets[set].count; ++i)
        if (lock_sets[set].locks[i] == lock) return 1;
    return 0;
}

/* A lock that two sets have, and that one of them at least holds alone. What is shared with readers counts as a lock at
   the next byte. */
static const void *common_lock(uint16_t a, uint16_t b) {
    for (int i = 0; i < lock_sets[a].count; ++i) {
        const char *own = lock_sets[a].locks[i], *lock = own - ((uintptr_t)own & 1);
        if (holds(b, lock) || (own == lock && holds(b, lock + 1))) return lock;
    }
    return 0;
}

/* What a block of a grid knows of another: released there by a fence and an atomic, acquired here by an atomic. */
typedef struct {
    uint32_t owner, time;
} release;
static release *learnt; /* of the running block, an entry per block of the grid */
static uint32_t learnt_count;

static int sees(const strand *s, const visit *was, int sure) {
    if (was->owner == s->owner && was->time < s->begun) return (sure ? s->sure_past : s->past) >= was->time;
    return was->owner < s->seen.count && (sure ? s->seen.sure : s->seen.at)[was->owner] >= was->time;
}

static void acquire_lock(const void *lock);
static int is_handed_on(const visit *was);

/* `CHANCE`: with another order of taking locks, nothing would order the two. Accesses under a common lock have the
   order of its holders, as has what precedes the one and what follows the other. */
enum { APART, CHANCE, IN_ORDER };
static int order_of(const visit *was) {
    if (mode == THREADS) {
        if (sees(now->strand, was, 1)) return IN_ORDER;
        const void *lock = common_lock(was->locks, now->strand->locks);
        if (lock) acquire_lock(lock);
        return lock ? IN_ORDER : sees(now->strand, was, 0) ? CHANCE : APART;
    }
    if (mode != GRID) return IN_ORDER;
    const uint32_t first = grid_block * grid_threads + 1, their_number = was->owner - first;
    if (their_number >= grid_threads) { /* of another block */
        const uint32_t their_block = (was->owner - 1) / grid_threads;
        const release *known = their_block < learnt_count && learnt[their_block].owner ? learnt + their_block : 0;
        if (known && (was->time >> 12 < known->time >> 12 || was->owner == known->owner)) return IN_ORDER;
        return is_handed_on(was) ? IN_ORDER : APART;
    }
    if (was->time >> 12 != now->time >> 12) return IN_ORDER;
    if (their_number / WARP == (uint32_t)now->number / WARP && was->time != now->time) return IN_ORDER;
    return is_handed_on(was) ? IN_ORDER : APART;
}

static uint32_t own_time(void) {
    if (mode == GRID) return now->time;
    const clocks *seen = &now->strand->seen;
    return now->strand->owner < seen->count ? seen->at[now->strand->owner] : 0;
}

/* Keeps the current visit, in place of one of two. */
static void note(visit *kept, const visit *comes) {
    for (int i = 0; i < 2; ++i) {
        if (kept[i].owner == comes->owner) {
            if (kept[i].time == comes->time && (mode == GRID ? kept[i].locks == comes->locks : !kept[i].locks))
                return; /* a visit without locks says more */
            kept[i] = *comes;
            return;
        }
    }
    const int is_seen = mode == THREADS ? sees(now->strand, kept, 1) : order_of(kept) == IN_ORDER;
    if (!kept[0].owner || is_seen) kept[0] = *comes;
    else kept[1] = *comes;
}

/* The last racing write: whether it left the value unchanged is seen at the next access. */
static struct {
    const char *at;
    char held[64];
    int bytes, number;
} pending = {0, {0}, 0, -1};
static finding table[MOST_FOUND];
static int found_count, found_last = -1;

static void settle_pending(void) {
    if (pending.number < 0) return;
    if (memcmp(pending.at, pending.held, (size_t)pending.bytes)) table[pending.number].changed += 1;
    pending.number = -1;
}

/* In a grid, volatile memory that blocks share is read and written at once, as by atomics, but not updated. */
enum { BY_VOLATILE = 0xFFFF };
static int is_volatile;

static const char *access_at; /* of the current access, which may have several cells */
static int64_t access_bytes;

/* An owner that reads a cell and then compares and swaps it has guessed its value, and the swap proves the guess: reads
   by that line do not conflict with atomics, whichever owner makes them. */
static uint8_t is_guess[MOST_SITES + 1];
static int is_swap;

static void meet_visit(const block *b, int64_t offset, int how, int site, const visit *other, int other_how, uint32_t owner) {
    if (!other->owner || (other->owner == owner && (mode == GRID || other->time >= now->strand->begun))) return;
    if ((how == READ && other_how == ATOMIC && is_guess[site]) || (how == ATOMIC && other_how == READ && is_guess[other->site]))
        return;
    if (is_volatile && (other_how == ATOMIC || (how == ATOMIC && other->locks == BY_VOLATILE))) return;
    const int order = order_of(other);
    if (order == IN_ORDER) return;
    found(order == CHANCE ? "ordered-by-chance" : "race", how, site, b, offset, other, other_how, "%s", "");
    if (found_last < 0) return;
    if (how == WRITE && other_how == WRITE && pending.number < 0) {
        pending.at = access_at, pending.number = found_last;
        pending.bytes = access_bytes < (int64_t)sizeof pending.held ? (int)access_bytes : (int)sizeof pending.held;
        __real_memcpy(pending.held, pending.at, (size_t)pending.bytes);
    } else if (how != WRITE || other_how != WRITE) {
        table[found_last].changed += 1;
    }
}

/* For a map: the writes of each of the first regions, in order. */
enum { MOST_REGIONS = 64, MOST_WRITES = 200000 };
typedef struct {
    const void *pc;
    uint32_t grid[6];
} region;
typedef struct {
    int32_t region, block;
    uint32_t owner;
    int64_t offset;
} written;
static region regions[MOST_REGIONS];
static written *writes;
static int is_mapping, region_count;
static int64_t write_count;

static int32_t number_of(const block *b);

static void begin_region(const void *pc, const uint32_t *grid) {
    if (!is_mapping) return;
    if (!writes) writes = pages(MOST_WRITES * sizeof *writes);
    if (region_count < MOST_REGIONS) {
        regions[region_count] = (region){.pc = pc};
        if (grid) __real_memcpy(regions[region_count].grid, grid, sizeof regions[0].grid);
    }
    region_count += 1;
}

static void keep_write(const block *b, int64_t offset, uint32_t owner) {
    if (!writes || region_count > MOST_REGIONS || b->kind == SHARED || b->kind == STACK) return;
    if (write_count < MOST_WRITES) writes[write_count] = (written){region_count - 1, number_of(b), owner, offset};
    write_count += 1;
}

static void meet_grid(const block *b, const cell *c, int64_t offset, int how, int site);
static void meet_work(const block *b, const cell *c, int64_t offset, int how, int site);
static void keep_copied(cell *c, int how, int site);
static void prove_guesses(const void *at);
static uint32_t copies_open;
static int is_being_copied(const block *b, int64_t offset, int how, int site);

enum { POISON = 0xCB };
static int is_poison(const char *at, int bytes) {
    int k = 0;
    while (k < bytes && at[k] == (char)POISON) ++k;
    return k == bytes;
}

/* Whether code that is not watched, as fread, has written beside a narrow cell: then its bytes too may be a value. */
static int is_filled_unseen(const block *b, int64_t offset) {
    const int64_t end = (offset | 7) < b->bytes ? (offset | 7) + 1 : b->bytes;
    for (int64_t at = offset & -8; b->shift < 2 && at < end; ++at)
        if (at >= b->fresh_from && b->start[at] != (char)POISON && !(b->cells[at >> b->shift].round & IS_WRITTEN)) return 1;
    return 0;
}

static void touch_cell(block *b, cell *c, int64_t offset, int how, int site, int is_scalar) {
    if (awaited_count && mode == SERIAL) meet_grid(b, c, offset, how, site);
    if (is_in_work && b->kind != SHARED) meet_work(b, c, offset, how, site);
    const uint32_t round = b->kind == SHARED ? shared_round : now_round;
    if (c->round == IS_PRIVATE && how != WRITE && is_scalar && is_poison(b->start + offset, 1 << b->shift))
        found("uninitialised", how, site, b, offset, 0, 0, "%s", "");
    if ((c->round & ~(uint32_t)FLAGS) != round) {
        const uint32_t flags = b->kind == SHARED ? 0 : c->round & FLAGS;
        *c = (cell){.round = round | flags};
    }
    if (how != WRITE && copies_open && is_scalar && is_poison(b->start + offset, 1 << b->shift) && is_being_copied(b, offset, how, site))
        c->round |= IS_SET;
    else if (how != WRITE && b->is_fresh && offset >= b->fresh_from && is_scalar && !(c->round & IS_SET) && b->widest <= 1 << b->shift) {
        if (is_poison(b->start + offset, 1 << b->shift) && !is_filled_unseen(b, offset))
            found("uninitialised", how, site, b, offset, 0, 0, "%s", b->kind == SHARED ? "shared" : "");
        c->round |= IS_SET; /* unwatched code wrote it, or it is reported already */
    }
    if (how != READ) c->round |= IS_SET | IS_WRITTEN;
    if (mode == SERIAL) {
        if (is_in_work) keep_copied(c, how, site);
        return;
    }
    const uint32_t owner = mode == GRID ? grid_block * grid_threads + (uint32_t)now->number + 1 : now->strand->owner;
    if (is_mapping && how != READ) keep_write(b, offset, mode == GRID ? owner - 1 : (uint32_t)now->number);
    for (int i = 0; is_swap && i < 2; ++i)
        if (c->reads[i].owner == owner) is_guess[c->reads[i].site] = 1;
    meet_visit(b, offset, how, site, &c->write, WRITE, owner);
    for (int i = 0; i < 2; ++i) {
        if (how != ATOMIC) meet_visit(b, offset, how, site, c->atomics + i, ATOMIC, owner);
        if (how != READ) meet_visit(b, offset, how, site, c->reads + i, READ, owner);
    }
    const visit comes = {owner, own_time(), (uint16_t)site,
                         now->strand ? now->strand->locks : is_volatile ? BY_VOLATILE : (uint16_t)now->releases};
    if (how == READ) note(c->reads, &comes);
    else if (how == ATOMIC) note(c->atomics, &comes);
    else if (c->write.owner != owner || c->write.time != comes.time || c->write.locks || (mode == GRID && comes.locks))
        c->write = comes;
}
