/* The memory of a device, and the order between grids and the host: a grid is over once the host has waited for it. */

void *noyau_device_memory(int64_t bytes, int is_unified, int unit, const void *pc) {
    block *made = allocate(bytes, 256, is_unified ? HEAP : DEVICE, 1);
    if (!made) return 0;
    made->site = site_of(pc), made->unit = unit, made->is_mapped = 1, made->is_of_device = made->kind == DEVICE;
    snprintf(made->name, sizeof made->name, "the %lld bytes of device memory", (long long)bytes);
    return made->start;
}

/* Lets grids touch a block of the host's memory. */
void noyau_device_map(const void *at) {
    block *b = among(blocks, block_count, at);
    if (b && (const char *)at < b->start + b->bytes) b->is_mapped = 1;
}

/* Grids that nobody has waited for, each by its first and its last round. */
enum { MOST_AWAITED = 64 };
static struct {
    uint32_t first, last;
} awaited[MOST_AWAITED];

static void await_grid(uint32_t first, uint32_t last) {
    if (awaited_count == MOST_AWAITED) __real_memmove(awaited, awaited + 1, sizeof awaited - sizeof *awaited), --awaited_count;
    awaited[awaited_count].first = first, awaited[awaited_count++].last = last;
}

/* A time of the device, for events; and a wait for all launches before a time. */
uint32_t noyau_device_time(void) { return now_round; }
void noyau_device_wait(uint32_t until) {
    int kept = 0;
    for (int i = 0; i < awaited_count; ++i)
        if (awaited[i].last >= until) awaited[kept++] = awaited[i];
    awaited_count = kept;
}

/* Reports an access by the host to a cell of a grid that it has not waited for. */
static void meet_grid(const block *b, const cell *c, int64_t offset, int how, int site) {
    const uint32_t round = c->round & ~(uint32_t)FLAGS;
    for (int i = 0; i < awaited_count; ++i) {
        if (round < awaited[i].first || round > awaited[i].last) continue;
        const visit *other = c->write.owner ? &c->write : how == WRITE && c->reads[0].owner ? c->reads : 0;
        if (!other && how != ATOMIC && c->atomics[0].owner) other = c->atomics;
        if (!other || (how == READ && other == c->atomics && is_guess[site])) return;
        is_of_host = 1;
        found("race", how, site, b, offset, other, other == &c->write ? WRITE : other == c->reads ? READ : ATOMIC, "%s", "");
        is_of_host = 0;
        if (found_last >= 0) table[found_last].changed += 1;
        return;
    }
}

static const block *block_of(int32_t number);

/* The host compares and swaps a cell: its earlier reads there beside a grid's atomics are no findings. */
static void prove_guesses(const void *at) {
    const block *b = awaited_count && mode == SERIAL ? among(blocks, block_count, at) : 0;
    for (int i = 0; b && i < found_count; ++i) {
        finding *f = table + i;
        if (f->how != READ || f->other_how != ATOMIC || block_of(f->block) != b || b->start + f->offset != at) continue;
        f->count = 0, is_guess[f->site] = 1;
    }
}

void noyau_device_free(void *at, const void *pc) { release_block(at, site_of(pc)); }

static block *block_at(const void *at) {
    block *b = (char *)at >= arena && (char *)at < arena_end ? among(blocks, block_count, at) : 0;
    return b && (char *)at < b->start + b->bytes ? b : 0;
}

/* Copies may touch memory of the device, whoever asks for them, and are ordered with grids. */
static int kept_awaited;
static void begin_copy(void) { kept_awaited = awaited_count, awaited_count = 0; }
static void end_copy(void) { awaited_count = kept_awaited; }
static int8_t open_device(const void *at) {
    block *b = block_at(at);
    if (!b || !b->is_of_device) return 0;
    b->is_of_device = 0;
    return 1;
}
static void close_device(const void *at, int8_t was_open) {
    if (was_open) among(blocks, block_count, at)->is_of_device = 1;
}

/* The bytes of an element, or of a cell if that is unknown. */
static long long unit_of(const block *b) { return b->unit ? b->unit : b->shift > 3 ? 8 : b->shift > 0 ? 1 << b->shift : 1; }

/* Whether a grid has left the number `many` as an integer that is alone in its memory, as a count of elements. */
static int is_counted(int64_t many) {
    for (int k = 0; k < block_count + global_count; ++k) {
        const block *b = k < block_count ? blocks + k : globals + (k - block_count);
        if ((b->kind != DEVICE && b->kind != GLOBAL) || b->is_freed || !b->launch_number) continue;
        if ((b->bytes != 4 && b->bytes != 8) || !b->cells) continue;
        int64_t value = 0;
        __real_memcpy(&value, b->start, (size_t)b->bytes);
        if (value == many && b->cells->round & IS_WRITTEN) return 1;
    }
    return 0;
}

/* Whether an element of a memory that began empty still has no value. */
static int is_hole(const block *b, int64_t at, int64_t unit, int flag) {
    int64_t k = 0;
    while (k < unit && b->start[at + k] == (char)0xCB) ++k;
    return k == unit && at >= b->fresh_from && !(b->cells && b->cells[at >> b->shift].round & flag);
}
void noyau_result_holes(const char *from, int64_t bytes, int64_t unit) {
    const block *b = block_at(from);
    for (int64_t at = 0; at < bytes; at += unit) {
        const char hole = b && b->is_fresh && is_hole(b, from - b->start + at, unit, IS_WRITTEN);
        noyau_result(&hole, 1);
    }
}

/* Whether a grid has left integers, each thread's number of elements, of 1, 2, 3, 4 or 8 cells, with that sum. */
static int is_counted_in_parts(int64_t many) {
    for (int64_t k = 0; k < block_count; ++k) {
        const block *b = blocks + k;
        if (b->kind != DEVICE || b->is_freed || !b->launch_number || b->bytes <= 8 || b->bytes % 4 || !b->cells) continue;
        if (!(b->cells->round & IS_WRITTEN)) continue;
        int64_t sum = 0;
        for (int64_t at = 0; at < b->bytes && sum >= 0 && sum <= many; at += 4) {
            int32_t value;
            __real_memcpy(&value, b->start + at, sizeof value);
            sum = value < 0 ? -1 : sum + value;
        }
        for (int64_t cells = 1; cells <= 8; cells += cells == 4 ? 4 : 1)
            if (sum > 0 && sum * cells == many) return 1;
    }
    return 0;
}

/* Reports elements that the host copies from the device and that nobody has written. */
static void find_holes(const char *from, int64_t bytes, int site) {
    const block *b = block_at(from);
    if (!b || b->kind != DEVICE || !b->is_fresh || b->is_freed || from + bytes > b->start + b->bytes) return;
    const int64_t unit = unit_of(b);
    int64_t missed = 0, first = 0, last = 0, set = 0;
    for (int64_t at = (from - b->start) / unit * unit; at + unit <= from - b->start + bytes; at += unit) {
        const int hole = is_hole(b, at, unit, IS_SET);
        if (!hole) last = at, ++set;
        else if (!missed++) first = at;
    }
    if (!missed || (first && last < first && is_counted(first / unit)) || is_counted_in_parts(set)) return;
    launch_now = b->launch_number - 1;
    found("unwritten", READ, site, b, first, 0, READ, "%s", "copied");
    launch_now = -1;
    if (found_last >= 0) table[found_last].count = missed;
}

void noyau_device_copy(void *to, const void *from, int64_t bytes, const void *pc) {
    const int site = site_of(pc);
    const block *target = block_at(to);
    if (bytes > 0 && mode == SERIAL && (!target || target->kind != DEVICE)) find_holes(from, bytes, site);
    const int8_t a = open_device(to), b = open_device(from);
    begin_copy();
    touch_range(from, bytes, READ, site);
    touch_range(to, bytes, WRITE, site);
    end_copy();
    if (bytes > 0) __real_memmove(to, from, (size_t)bytes);
    close_device(to, a), close_device(from, b);
}
/* The host's side of a copy that continues after its call returns: pinned memory, which the host may touch once it has
   waited. */
static void leave_copy(const void *at, int64_t bytes, int how, int site) {
    const block *b = block_at(at);
    if (bytes <= 0 || mode != SERIAL || !b || b->kind != HEAP || !b->is_mapped) return;
    fit_cells((block *)b, (const char *)at - b->start, bytes, b->cells ? b->shift : MOST_SHIFT);
    const int64_t first = ((const char *)at - b->start) >> b->shift, last = ((const char *)at - b->start + bytes - 1) >> b->shift;
    now_round += 1 << 2;
    for (int64_t i = first; i <= last; ++i) {
        cell *c = b->cells + i;
        *c = (cell){.round = now_round | (c->round & FLAGS)};
        *(how == WRITE ? &c->write : c->reads) = (visit){.owner = BY_COPY, .site = (uint16_t)site};
    }
    await_grid(now_round, now_round);
    now_round += 1 << 2;
}
void noyau_device_copy_on(void *to, const void *from, int64_t bytes, const void *pc) {
    noyau_device_copy(to, from, bytes, pc);
    leave_copy(from, bytes, READ, site_of(pc)), leave_copy(to, bytes, WRITE, site_of(pc));
}
void noyau_device_set(void *to, int value, int64_t bytes, const void *pc) {
    const int8_t a = open_device(to);
    begin_copy();
    filled_with = (unsigned char)value;
    touch_range(to, bytes, WRITE, site_of(pc));
    filled_with = -1;
    end_copy();
    if (bytes > 0) __real_memset(to, value, (size_t)bytes);
    close_device(to, a);
}
