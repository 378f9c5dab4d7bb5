/* The shadow of memory: the writers and readers of each cell, so that one serial run finds the races of any schedule.

   An *owner* runs by itself: an iteration of a prange, a thread of CUDA, a program of Triton, a thread of OpenMP. Two
   accesses to a cell conflict if their owners differ, at least one is a plain write, and nothing orders them. Accesses
   are ordered within a block by another `epoch` (barriers passed), within a warp of it by another `warp_epoch`
   (syncwarps passed), and by the end of a region. Without blocks, give each owner a block of its own, or block 0 and
   epoch 0 to all: nothing is ordered then. An owner that passes a fence and then touches a cell by an atomic publishes
   what it did before the fence, and what its block did before its last barrier; an owner that touches that cell by an
   atomic later acquires this, and so does its block past its next barrier. After an owner's atomic on a cell, earlier
   atomics by others do not conflict with its accesses. An owner that reads a cell and then compares and swaps it has
   guessed its value, and the swap proves the guess: reads by that line do not conflict with atomics, whichever owner
   makes them.

   A cell is the unit that is watched (an element of an array, or a byte); a site is the caller's number for a place in
   the source. Nothing here is thread-safe: owners run one after the other. */
#ifndef NOYAU_SHADOW_H
#define NOYAU_SHADOW_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* declares madvise */
#endif
#include <stdint.h>

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif

/* Kinds of accesses. A write that leaves the cell's value is SAME_WRITE: two of them race, but only deserve a warning.
   An ATOMIC reads and writes; atomics do not conflict with each other. A SWAP compares first. */
enum { SHADOW_READ = 0, SHADOW_WRITE = 1, SHADOW_ATOMIC = 2, SHADOW_SAME_WRITE = 3, SHADOW_SWAP = 4, SHADOW_ACCESSES = 8 };

/* Kinds of findings, in the order of engine.py. */
enum { SHADOW_RACE = 1, SHADOW_OUTSIDE = 2, SHADOW_NEGATIVE = 3, SHADOW_UNSET = 4, SHADOW_BARRIER = 5 };

/* How far apart the two threads of a race are. */
enum { SHADOW_IN_WARP = 0, SHADOW_IN_BLOCK = 1, SHADOW_BETWEEN_BLOCKS = 2 };

/* Findings with equal kind, accesses, sites and memory are merged: the first of the widest `reach`, and their count. */
typedef struct {
    int32_t kind, memory, access, other_access, site, other_site, block, other_block, reach;
    int64_t owner, other_owner;
    int64_t cell;         /* of a race; or an index outside */
    int64_t axis, extent; /* of an index outside */
    int64_t count;
    int64_t changed; /* how many of them changed the cell's value; for a race of writes, 0 makes it a warning */
} shadow_finding;

typedef struct shadow shadow;

NOYAU_EXPORT shadow *shadow_new(void);
NOYAU_EXPORT void shadow_free(shadow *);

/* Adds a memory of so many cells; its number, from 0 on, or -1 without room. `is_set`: its cells hold values. */
NOYAU_EXPORT int32_t shadow_memory(shadow *, int64_t cells, int32_t is_set);
/* Splits each of its cells into `parts` cells of the same state; 0 without room. */
NOYAU_EXPORT int32_t shadow_split(shadow *, int32_t memory, int64_t parts);
/* Frees the cells of a memory that is not touched again (its number stays in use). */
NOYAU_EXPORT void shadow_forget(shadow *, int32_t memory);
/* Resets a memory: no values, no accesses (the shared memory of the next block). */
NOYAU_EXPORT void shadow_clear(shadow *, int32_t memory);


/* Begins a region: a parallel loop, a launch, or the serial code after one. It follows all accesses before it. In a
   region with `serial`, nothing races. */
NOYAU_EXPORT void shadow_region(shadow *, int32_t serial);
/* Sets the owner of the following accesses. Owners count from 0. */
NOYAU_EXPORT void shadow_enter(shadow *, int64_t owner, int32_t block, int32_t warp, int32_t epoch, int32_t warp_epoch);

/* Notes that the current owner has passed a memory fence. */
NOYAU_EXPORT void shadow_fence(shadow *);

/* Records an access, before or after it happens. A cell outside the memory only gives a finding (outside), and the
   result 0; else the result is 1. */
NOYAU_EXPORT int32_t shadow_touch(shadow *, int32_t memory, int64_t cell, int32_t access, int32_t site);
/* Records accesses by one owner, in order; the number of cells inside. `changed`: for writes, a byte per cell, whether
   its value changed, or NULL. */
NOYAU_EXPORT int64_t shadow_touch_many(shadow *, int32_t memory, const int64_t *cells, int64_t count, int32_t access,
                                       int32_t site, const uint8_t *changed);
/* Records accesses of several owners in sequence, each in a block of its own: the cells from starts[i] to starts[i + 1]
   are those of owners[i]. `fences`: each passes a memory fence before. */
NOYAU_EXPORT void shadow_touch_each(shadow *, const int64_t *owners, const int64_t *starts, int64_t count, int32_t memory,
                                    const int64_t *cells, int32_t access, int32_t site, const uint8_t *changed,
                                    int32_t fences);
/* Records accesses by many owners, in order: `count` rows of (memory * SHADOW_ACCESSES + access, cell, owner, site),
   and among them rows of events: (SHADOW_REGION, serial), (SHADOW_ENTER, owner, block << 32 | warp, epoch << 32 |
   warp_epoch), (SHADOW_FENCE), (SHADOW_CLEAR, memory). Without SHADOW_ENTER owners have no blocks. */
enum { SHADOW_REGION = -1, SHADOW_ENTER = -2, SHADOW_FENCE = -3, SHADOW_CLEAR = -4 };
NOYAU_EXPORT void shadow_replay(shadow *, const int64_t *rows, int64_t count);

/* Records an index outside its axis (SHADOW_OUTSIDE, SHADOW_NEGATIVE), or a barrier that not all owners reach
   (SHADOW_BARRIER). */
NOYAU_EXPORT void shadow_note(shadow *, int32_t kind, int32_t memory, int32_t access, int32_t site, int32_t other_site,
                              int64_t other_owner, int64_t index, int64_t axis, int64_t extent);

/* The number of cells that no owner wrote in any region; `first`: the first of them, -1 for none. */
NOYAU_EXPORT int64_t shadow_unwritten(const shadow *, int32_t memory, int64_t *first);
/* A byte per cell: 1 if some owner wrote it in any region. */
NOYAU_EXPORT void shadow_written(const shadow *, int32_t memory, uint8_t *marks);
NOYAU_EXPORT int64_t shadow_accesses(const shadow *);
NOYAU_EXPORT int64_t shadow_count(const shadow *);
/* The number of findings without room in the table. */
NOYAU_EXPORT int64_t shadow_dropped(const shadow *);
NOYAU_EXPORT const shadow_finding *shadow_findings(const shadow *);

#endif
