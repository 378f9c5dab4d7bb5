/* The implementation of engine.h, which precedes this text. */
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { MOST_FINDINGS = 256, IS_SET = 1, IS_WRITTEN = 2 };
enum { FEW_BYTES = 4 << 20, MANY_BYTES = 1 << 29, PAGE = 1 << 12 };

/* The owners that touched a cell in one way and are not ordered before the present. `owner` counts from 1; 0 is nobody.
   `other` is the owner before, if there were two; `block` and `warp` are MANY for owners of several. */
enum { MANY = -1 };
typedef struct {
    uint32_t owner, other;
    int32_t block, warp, epoch, warp_epoch, site;
    uint32_t stamp; /* the number of accesses at the last touch */
} crowd;

/* An atomic on a cell, once any owner has passed a fence. */
typedef struct {
    uint32_t owner, stamp;
    uint32_t fence; /* the stamp of its owner's last fence before */
    int32_t block, epoch, memory;
    int64_t cell;
} meeting;

/* Knowledge about two owners: the stamp up to which the other's accesses are published, and that from which not. */
typedef struct {
    uint32_t owner, other;
    int32_t epoch, other_epoch;
    uint32_t published, unpublished;
} answer;

typedef struct {
    crowd readers;
    uint32_t region, flags;
} cell_shadow;

/* The owners that changed a cell; separate, since for read-only memory these are never accessed. */
typedef struct {
    crowd writer, atomics;
} change_shadow;

typedef struct {
    cell_shadow *cells; /* NULL once it is forgotten */
    change_shadow *changes;
    int64_t count;
    int32_t is_set, is_changed; /* its cells hold values; some were changed since its creation */
} memory_shadow;

struct shadow {
    memory_shadow *memories;
    int64_t memory_count, room;
    crowd now; /* the current owner */
    uint32_t region;
    int32_t serial;
    meeting *meetings;
    int64_t meeting_count, meeting_room;
    answer known; /* of the last two owners; none if `owner` is 0 */
    uint32_t *fences; /* by owner: the stamp of its last fence in this region, 0 for none */
    int64_t fence_count;
    uint8_t *guessing; /* a bit per site of reads that were proved by a swap of their owner */
    int64_t guessing_bytes;
    int64_t accesses, count, dropped;
    shadow_finding findings[MOST_FINDINGS];
};

shadow *shadow_new(void) {
    shadow *s = calloc(1, sizeof *s);
    if (s) s->region = 1, s->serial = 1, s->now.owner = 1;
    return s;
}

void shadow_free(shadow *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->memory_count; ++i) shadow_forget(s, (int32_t)i);
    free(s->memories);
    free(s->meetings);
    free(s->fences);
    free(s->guessing);
    free(s);
}

/* Zeros, or NULL. Untouched pages cost nothing: the system provides zeros on first access. Large pages need one request
   each, since a shadow is usually touched all over; a very large one may not be, and has small pages. */
static void *zeros(int64_t cells, size_t size) {
    char *const start = calloc(cells ? (size_t)cells : 1, size);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const size_t bytes = (size_t)cells * size;
    char *const from = (char *)(((uintptr_t)start + PAGE - 1) / PAGE * PAGE);
    if (start && bytes >= FEW_BYTES && bytes <= MANY_BYTES)
        madvise(from, (size_t)(start + bytes - from) / PAGE * PAGE, MADV_HUGEPAGE);
#endif
    return start;
}

int32_t shadow_memory(shadow *s, int64_t cells, int32_t is_set) {
    if (cells < 0 || s->memory_count == INT32_MAX) return -1;
    if (s->memory_count == s->room) {
        const int64_t room = s->room ? 2 * s->room : 16;
        memory_shadow *grown = realloc(s->memories, (size_t)room * sizeof *grown);
        if (!grown) return -1;
        s->memories = grown, s->room = room;
    }
    memory_shadow made = {zeros(cells, sizeof *made.cells), zeros(cells, sizeof *made.changes), cells, is_set, 0};
    if (!made.cells || !made.changes) {
        free(made.cells), free(made.changes);
        return -1;
    }
    s->memories[s->memory_count] = made;
    return (int32_t)s->memory_count++;
}

static memory_shadow *memory_of(const shadow *s, int32_t memory) {
    return memory >= 0 && memory < s->memory_count && s->memories[memory].cells ? s->memories + memory : NULL;
}

int32_t shadow_split(shadow *s, int32_t memory, int64_t parts) {
    memory_shadow *m = memory_of(s, memory);
    if (!m || parts < 1 || m->count > INT64_MAX / parts) return 0;
    memory_shadow made = *m;
    made.count *= parts;
    made.cells = zeros(made.count, sizeof *made.cells), made.changes = zeros(made.count, sizeof *made.changes);
    if (!made.cells || !made.changes) {
        free(made.cells), free(made.changes);
        return 0;
    }
    for (int64_t i = 0; i < made.count; ++i) made.cells[i] = m->cells[i / parts], made.changes[i] = m->changes[i / parts];
    free(m->cells), free(m->changes);
    *m = made;
    for (int64_t i = 0; i < s->meeting_count; ++i)
        if (s->meetings[i].memory == memory) s->meetings[i].cell *= parts;
    for (int64_t i = 0; i < s->count; ++i) {
        shadow_finding *found = s->findings + i;
        if (found->memory == memory && found->axis < 0) found->cell *= parts, found->extent *= parts;
    }
    return 1;
}

void shadow_forget(shadow *s, int32_t memory) {
    memory_shadow *m = memory_of(s, memory);
    if (m) free(m->cells), free(m->changes), m->cells = NULL;
}

void shadow_clear(shadow *s, int32_t memory) {
    memory_shadow *m = memory_of(s, memory);
    if (!m) return;
    memset(m->cells, 0, (size_t)m->count * sizeof *m->cells);
    memset(m->changes, 0, (size_t)m->count * sizeof *m->changes);
    m->is_set = m->is_changed = 0;
}

void shadow_region(shadow *s, int32_t serial) {
    s->region += 1;
    s->serial = serial;
    s->now = (crowd){.owner = 1};
    s->meeting_count = 0;
    s->known.owner = 0;
    if (s->fences) memset(s->fences, 0, (size_t)s->fence_count * sizeof *s->fences);
}

void shadow_enter(shadow *s, int64_t owner, int32_t block, int32_t warp, int32_t epoch, int32_t warp_epoch) {
    s->now = (crowd){(uint32_t)(owner + 1), 0, block, warp, epoch, warp_epoch, 0, 0};
}

/* Findings. */

static int is_alike(const shadow_finding *a, const shadow_finding *b) {
    return a->kind == b->kind && a->site == b->site && a->other_site == b->other_site && a->access == b->access &&
           a->other_access == b->other_access && a->memory == b->memory && a->axis == b->axis;
}

static void keep(shadow *s, const shadow_finding *found) {
    for (int64_t i = 0; i < s->count; ++i) {
        shadow_finding *kept = s->findings + i;
        if (!is_alike(kept, found)) continue;
        const int64_t count = kept->count + 1, changed = kept->changed + found->changed;
        if (found->reach > kept->reach) *kept = *found;
        kept->count = count, kept->changed = changed;
        return;
    }
    if (s->count == MOST_FINDINGS) {
        s->dropped += 1;
        return;
    }
    s->findings[s->count] = *found;
    s->findings[s->count++].count = 1;
}

static shadow_finding found_by(const shadow *s, int32_t kind, int32_t memory, int32_t access, int32_t site) {
    shadow_finding made = {0};
    made.kind = kind, made.memory = memory, made.site = site;
    made.access = access == SHADOW_SAME_WRITE ? SHADOW_WRITE : access == SHADOW_SWAP ? SHADOW_ATOMIC : access;
    made.owner = (int64_t)s->now.owner - 1, made.block = s->now.block;
    made.other_owner = -1, made.other_site = -1, made.axis = -1;
    made.changed = access != SHADOW_SAME_WRITE;
    return made;
}

void shadow_note(shadow *s, int32_t kind, int32_t memory, int32_t access, int32_t site, int32_t other_site,
                 int64_t other_owner, int64_t index, int64_t axis, int64_t extent) {
    shadow_finding made = found_by(s, kind, memory, access, site);
    made.other_site = other_site, made.other_owner = other_owner;
    made.cell = index, made.axis = axis, made.extent = extent;
    keep(s, &made);
}

static void race(shadow *s, int32_t memory, int64_t cell, int32_t access, int32_t site, const crowd *them, int32_t how) {
    shadow_finding made = found_by(s, SHADOW_RACE, memory, access, site);
    made.other_owner = (int64_t)(them->owner == s->now.owner ? them->other : them->owner) - 1;
    made.other_access = how, made.other_site = them->site, made.other_block = them->block;
    made.reach = them->block != s->now.block ? SHADOW_BETWEEN_BLOCKS
                 : them->warp != s->now.warp ? SHADOW_IN_BLOCK
                                             : SHADOW_IN_WARP;
    made.cell = cell;
    keep(s, &made);
}

/* The algorithm. */

static void set_bit(uint8_t **bits, int64_t *bytes, uint32_t number) {
    const int64_t byte = number / 8;
    if (byte >= *bytes) {
        const int64_t more = 2 * byte + 64;
        uint8_t *grown = realloc(*bits, (size_t)more);
        if (!grown) return;
        memset(grown + *bytes, 0, (size_t)(more - *bytes));
        *bits = grown, *bytes = more;
    }
    (*bits)[byte] |= (uint8_t)(1 << number % 8);
}

static int has_bit(const uint8_t *bits, int64_t bytes, uint32_t number) {
    return number / 8 < bytes && bits[number / 8] >> number % 8 & 1;
}

static uint32_t fence_of(const shadow *s, uint32_t owner) { return owner < s->fence_count ? s->fences[owner] : 0; }

void shadow_fence(shadow *s) {
    const int64_t owner = s->now.owner;
    if (owner >= s->fence_count) {
        const int64_t count = 2 * owner + 64;
        uint32_t *grown = realloc(s->fences, (size_t)count * sizeof *grown);
        if (!grown) return;
        memset(grown + s->fence_count, 0, (size_t)(count - s->fence_count) * sizeof *grown);
        s->fences = grown, s->fence_count = count;
    }
    s->fences[owner] = (uint32_t)s->accesses + 1;
    s->known.owner = 0;
}

static int is_guess(const shadow *s, int32_t site) {
    return site >= 0 && has_bit(s->guessing, s->guessing_bytes, (uint32_t)site);
}

/* Records an atomic, which may publish and may acquire. */
static void meet(shadow *s, int32_t memory, int64_t cell) {
    if (!s->fences) return;
    if (s->meeting_count == s->meeting_room) {
        const int64_t room = s->meeting_room ? 2 * s->meeting_room : 256;
        meeting *grown = realloc(s->meetings, (size_t)room * sizeof *grown);
        if (!grown) return;
        s->meetings = grown, s->meeting_room = room;
    }
    const uint32_t fence = fence_of(s, s->now.owner);
    const meeting made = {s->now.owner, s->now.stamp, fence, s->now.block, s->now.epoch, memory, cell};
    meeting *last = s->meeting_count ? s->meetings + s->meeting_count - 1 : NULL;
    if (last && last->owner == made.owner && last->epoch == made.epoch && last->memory == memory && last->cell == cell)
        *last = made; /* it tries again and again */
    else
        s->meetings[s->meeting_count++] = made;
    s->known.owner = 0;
}

/* Whether there are two meetings by which another's access was published to the current owner. */
static int find_meetings(const shadow *s, const crowd *them, const crowd *now) {
    for (int64_t i = s->meeting_count; i-- > 0;) {
        const meeting *mine = s->meetings + i;
        if (mine->block != now->block || (mine->owner != now->owner && mine->epoch >= now->epoch)) continue;
        for (int64_t j = i; j-- > 0;) {
            const meeting *its = s->meetings + j;
            if (!its->fence || its->block != them->block || its->cell != mine->cell) continue;
            /* The fence followed the published access: that of the meeting owner, or before a barrier of its owner. */
            if (its->fence <= them->stamp && (its->owner == them->owner || fence_of(s, them->owner) <= them->stamp))
                continue;
            if (its->memory != mine->memory || its->stamp < them->stamp) continue;
            if (its->owner == them->owner || its->epoch > them->epoch) return 1;
        }
    }
    return 0;
}

/* Whether another's access was published at a cell that the current owner, or its block before a barrier, reached
   later. Then the same owner's earlier accesses are published too, so only the first cell of a block is looked up. */
static int is_published(shadow *s, const crowd *them, const crowd *now) {
    answer *known = &s->known;
    if (known->owner != now->owner || known->epoch != now->epoch || known->other != them->owner ||
        known->other_epoch != them->epoch)
        *known = (answer){now->owner, them->owner, now->epoch, them->epoch, 0, UINT32_MAX};
    if (them->stamp <= known->published) return 1;
    if (them->stamp >= known->unpublished) return 0;
    const int found = find_meetings(s, them, now);
    if (found)
        known->published = them->stamp;
    else
        known->unpublished = them->stamp;
    return found;
}

/* Whether some owner of a crowd differs from the current one, and is not ordered before it. */
static int conflicts(shadow *s, const crowd *them, const crowd *now) {
    if (!them->owner || (them->owner == now->owner && !them->other)) return 0;
    if (them->block == MANY) return 1;
    if (them->block == now->block) {
        if (them->epoch != now->epoch) return 0;
        if (them->warp != MANY && them->warp == now->warp && them->warp_epoch != now->warp_epoch) return 0;
        if (them->other) return 1; /* only one of them may have published */
    }
    return !is_published(s, them, now);
}

/* Adds the current owner to a crowd. Members that are ordered before all later accesses are dropped, as is one that
   published to the current owner (a lock handed on): what follows the latter also follows it. */
static void join(shadow *s, crowd *them, const crowd *now, int32_t site) {
    crowd joined = *now;
    joined.site = site, joined.other = 0;
    if (them->owner && them->owner != now->owner && !them->other && s->meeting_count && is_published(s, them, now)) {
        *them = joined;
        return;
    }
    if (them->owner && them->block != now->block) {
        joined.block = MANY, joined.warp = MANY;
    } else if (them->owner && them->epoch == now->epoch && them->warp != now->warp) {
        joined.warp = MANY;
    } else if (!them->owner || them->epoch != now->epoch || them->warp_epoch != now->warp_epoch) {
        *them = joined;
        return;
    }
    joined.other = them->owner == now->owner ? them->other : them->owner;
    *them = joined;
}

static void touch_cell(shadow *s, memory_shadow *m, int32_t memory, int64_t cell, int32_t access, int32_t site) {
    cell_shadow *c = m->cells + cell;
    change_shadow *changes = m->changes + cell;
    const crowd *now = &s->now;
    s->now.stamp = (uint32_t)s->accesses;
    const int reads = access == SHADOW_READ || access == SHADOW_ATOMIC || access == SHADOW_SWAP;
    if (reads && !(c->flags & IS_SET) && !m->is_set) {
        shadow_finding made = found_by(s, SHADOW_UNSET, memory, access, site);
        made.cell = cell;
        keep(s, &made);
    }
    if (access != SHADOW_READ) c->flags |= IS_SET | IS_WRITTEN;
    if (s->serial) return;
    m->is_changed |= access != SHADOW_READ;
    if (c->region != s->region) {
        *c = (cell_shadow){.region = s->region, .flags = c->flags};
        if (m->is_changed) *changes = (change_shadow){0};
    }
    if (!m->is_changed) {
        join(s, &c->readers, now, site);
        return;
    }
    const int is_swap = access == SHADOW_SWAP, is_of_guess = access == SHADOW_READ && is_guess(s, site);
    if (is_swap) access = SHADOW_ATOMIC;
    if (is_swap && c->readers.owner == now->owner && c->readers.site >= 0)
        set_bit(&s->guessing, &s->guessing_bytes, (uint32_t)c->readers.site);
    if (conflicts(s, &changes->writer, now)) race(s, memory, cell, access, site, &changes->writer, SHADOW_WRITE);
    if (access != SHADOW_ATOMIC && !is_of_guess && changes->atomics.owner != now->owner && conflicts(s, &changes->atomics, now))
        race(s, memory, cell, access, site, &changes->atomics, SHADOW_ATOMIC);
    if (access != SHADOW_READ && !(access == SHADOW_ATOMIC && is_guess(s, c->readers.site)) && conflicts(s, &c->readers, now))
        race(s, memory, cell, access, site, &c->readers, SHADOW_READ);
    if (access == SHADOW_READ) {
        join(s, &c->readers, now, site);
    } else if (access == SHADOW_ATOMIC) {
        join(s, &changes->atomics, now, site);
        meet(s, memory, cell);
    } else {
        changes->writer = *now;
        changes->writer.site = site;
    }
}

int32_t shadow_touch(shadow *s, int32_t memory, int64_t cell, int32_t access, int32_t site) {
    memory_shadow *m = memory_of(s, memory);
    s->accesses += 1;
    if (!m || cell < 0 || cell >= m->count) {
        shadow_note(s, SHADOW_OUTSIDE, memory, access, site, -1, -1, cell, -1, m ? m->count : 0);
        return 0;
    }
    touch_cell(s, m, memory, cell, access, site);
    return 1;
}

int64_t shadow_touch_many(shadow *s, int32_t memory, const int64_t *cells, int64_t count, int32_t access, int32_t site,
                          const uint8_t *changed) {
    int64_t inside = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int is_same = access == SHADOW_WRITE && changed && !changed[i];
        inside += shadow_touch(s, memory, cells[i], is_same ? SHADOW_SAME_WRITE : access, site);
    }
    return inside;
}

void shadow_touch_each(shadow *s, const int64_t *owners, const int64_t *starts, int64_t count, int32_t memory,
                       const int64_t *cells, int32_t access, int32_t site, const uint8_t *changed, int32_t fences) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t start = starts[i];
        shadow_enter(s, owners[i], (int32_t)owners[i], 0, 0, 0);
        if (fences) shadow_fence(s);
        shadow_touch_many(s, memory, cells + start, starts[i + 1] - start, access, site, changed ? changed + start : NULL);
    }
}

/* A row that is not an access. */
static void replay_event(shadow *s, const int64_t *row) {
    switch (row[0]) {
    case SHADOW_REGION: shadow_region(s, row[1] != 0); break;
    case SHADOW_ENTER:
        shadow_enter(s, row[1], (int32_t)(row[2] >> 32), (int32_t)row[2], (int32_t)(row[3] >> 32), (int32_t)row[3]);
        break;
    case SHADOW_FENCE: shadow_fence(s); break;
    case SHADOW_CLEAR: shadow_clear(s, (int32_t)row[1]); break;
    default: break;
    }
}

void shadow_replay(shadow *s, const int64_t *rows, int64_t count) {
    for (int64_t i = 0; i < count; ++i, rows += 4) {
        if (rows[0] < 0) {
            replay_event(s, rows);
            continue;
        }
        s->now.owner = (uint32_t)(rows[2] + 1);
        shadow_touch(s, (int32_t)(rows[0] / SHADOW_ACCESSES), rows[1], (int32_t)(rows[0] % SHADOW_ACCESSES),
                     (int32_t)rows[3]);
    }
}

int64_t shadow_unwritten(const shadow *s, int32_t memory, int64_t *first) {
    const memory_shadow *m = memory_of(s, memory);
    int64_t missed = 0;
    *first = -1;
    for (int64_t i = 0; m && i < m->count; ++i) {
        if (m->cells[i].flags & IS_WRITTEN) continue;
        if (!missed++) *first = i;
    }
    return missed;
}

void shadow_written(const shadow *s, int32_t memory, uint8_t *marks) {
    const memory_shadow *m = memory_of(s, memory);
    for (int64_t i = 0; m && i < m->count; ++i) marks[i] = (m->cells[i].flags & IS_WRITTEN) != 0;
}

int64_t shadow_accesses(const shadow *s) { return s->accesses; }
int64_t shadow_count(const shadow *s) { return s->count; }
int64_t shadow_dropped(const shadow *s) { return s->dropped; }
const shadow_finding *shadow_findings(const shadow *s) { return s->findings; }
