/* The shadow of memory: who wrote and who read each cell, so that one serial run finds what any schedule could do.

   An *owner* is what runs by itself: an iteration of a prange, a thread of CUDA, a program of Triton, a thread of
   OpenMP. Two accesses to a cell conflict where their owners differ, one of them at least is a plain write, and nothing
   orders them. What orders: within a block another `epoch` (barriers passed), within a warp of it another `warp_epoch`
   (syncwarps passed), and the end of a region. Where there are no blocks, give each owner a block of its own, or block 0
   and epoch 0 to all: nothing is ordered then. Who has passed a fence and then touches a cell by an atomic publishes what
   it did before the fence, and what its block did before its last barrier; who touches that cell by an atomic later has
   it from there on, and so has its block past its next barrier. After one's own atomic on a cell, earlier ones by others
   are no conflict. Who reads a cell
   and then compares and swaps it has guessed what it holds, and the swap proves the guess: reads by that line are no
   conflict with atomics, whoever makes them.

   A cell is the unit of what is watched (an element of an array, or a byte), a site a number of the caller's for a place
   in the source. Nothing here is safe for threads: owners run one after the other. */
#ifndef NOYAU_SHADOW_H
#define NOYAU_SHADOW_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* of which madvise is */
#endif
#include <stdint.h>

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif

/* How a cell is touched. A write that leaves what the cell held is SAME_WRITE: two of them race, and only deserve a
   warning. An ATOMIC reads and writes; atomics do not conflict with each other. A SWAP is one that compares first. */
enum { SHADOW_READ = 0, SHADOW_WRITE = 1, SHADOW_ATOMIC = 2, SHADOW_SAME_WRITE = 3, SHADOW_SWAP = 4, SHADOW_ACCESSES = 8 };

/* Kinds of findings, in the order of engine.py. */
enum { SHADOW_RACE = 1, SHADOW_OUTSIDE = 2, SHADOW_NEGATIVE = 3, SHADOW_UNSET = 4, SHADOW_BARRIER = 5 };

/* Findings that are alike in kind, accesses, sites and memory are one: the first of them, and how many there were. */
typedef struct {
    int32_t kind, memory, access, other_access, site, other_site, block, other_block;
    int64_t owner, other_owner;
    int64_t cell;         /* of a race; or the index that lies outside */
    int64_t axis, extent; /* of what lies outside */
    int64_t count;
    int64_t changed; /* how many of them changed what the cell held; of a race of writes, 0 is a warning */
} shadow_finding;

typedef struct shadow shadow;

NOYAU_EXPORT shadow *shadow_new(void);
NOYAU_EXPORT void shadow_free(shadow *);

/* A new memory of so many cells; its number, from 0, or -1 where there is no room. `is_set`: its cells hold values. */
NOYAU_EXPORT int32_t shadow_memory(shadow *, int64_t cells, int32_t is_set);
/* Each of its cells becomes so many, of which the same is known; whether there was room. */
NOYAU_EXPORT int32_t shadow_split(shadow *, int32_t memory, int64_t parts);
/* It is not touched again (its number stays taken). */
NOYAU_EXPORT void shadow_forget(shadow *, int32_t memory);
/* It is as new: its cells hold nothing, and nobody has touched them (the shared memory of the next block). */
NOYAU_EXPORT void shadow_clear(shadow *, int32_t memory);


/* A new region begins: a parallel loop, a launch, or the serial code after one. What came before is ordered before it.
   Within a region made with `serial`, nothing races. */
NOYAU_EXPORT void shadow_region(shadow *, int32_t serial);
/* Whose accesses come from here on. Owners count from 0. */
NOYAU_EXPORT void shadow_enter(shadow *, int64_t owner, int32_t block, int32_t warp, int32_t epoch, int32_t warp_epoch);

/* Who runs has passed a memory fence. */
NOYAU_EXPORT void shadow_fence(shadow *);

/* Before (or after) each access. A cell that is not of the memory is a finding (outside), and nothing else: 0 then,
   else 1. */
NOYAU_EXPORT int32_t shadow_touch(shadow *, int32_t memory, int64_t cell, int32_t access, int32_t site);
/* Many cells in the order given, by one owner; how many were inside. `changed`: for writes, a byte for each that says
   whether the cell held something else before, or NULL. */
NOYAU_EXPORT int64_t shadow_touch_many(shadow *, int32_t memory, const int64_t *cells, int64_t count, int32_t access,
                                       int32_t site, const uint8_t *changed);
/* Accesses of several owners, one after the other, each of a block of its own: the cells from starts[i] to starts[i + 1]
   are those of owners[i]. `fences`: each passes a memory fence before. */
NOYAU_EXPORT void shadow_touch_each(shadow *, const int64_t *owners, const int64_t *starts, int64_t count, int32_t memory,
                                    const int64_t *cells, int32_t access, int32_t site, const uint8_t *changed,
                                    int32_t fences);
/* Notes of accesses by many owners, in order, `count` rows of (memory * SHADOW_ACCESSES + access, cell, owner, site), and
   among them rows of what else happens: (SHADOW_REGION, serial), (SHADOW_ENTER, owner, block << 32 | warp,
   epoch << 32 | warp_epoch), (SHADOW_FENCE), (SHADOW_CLEAR, memory). Without SHADOW_ENTER owners have no blocks. */
enum { SHADOW_REGION = -1, SHADOW_ENTER = -2, SHADOW_FENCE = -3, SHADOW_CLEAR = -4 };
NOYAU_EXPORT void shadow_replay(shadow *, const int64_t *rows, int64_t count);

/* An index that lies outside its axis was met (SHADOW_OUTSIDE, SHADOW_NEGATIVE), or a barrier that not all
   reach (SHADOW_BARRIER). */
NOYAU_EXPORT void shadow_note(shadow *, int32_t kind, int32_t memory, int32_t access, int32_t site, int32_t other_site,
                              int64_t other_owner, int64_t index, int64_t axis, int64_t extent);

/* How many cells no owner wrote in any region; `first` is the first of them, -1 where there is none. */
NOYAU_EXPORT int64_t shadow_unwritten(const shadow *, int32_t memory, int64_t *first);
/* A byte for each cell: 1 where some owner wrote it in any region. */
NOYAU_EXPORT void shadow_written(const shadow *, int32_t memory, uint8_t *marks);
NOYAU_EXPORT int64_t shadow_accesses(const shadow *);
NOYAU_EXPORT int64_t shadow_count(const shadow *);
/* How many findings had no room in the table. */
NOYAU_EXPORT int64_t shadow_dropped(const shadow *);
NOYAU_EXPORT const shadow_finding *shadow_findings(const shadow *);

#endif
