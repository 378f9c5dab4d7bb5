/* Loops of `omp simd`: their iterations run in lanes, statement by statement. An iteration that reads what an earlier
   one writes further down in the body would read it too soon; writes further up have been made by all lanes.

   The place of an access in the body is that of its site among the sites that the loop has reached. */

enum { LANE_CELLS = 1 << 16, LANE_TRIES = 16 };
static struct {
    const char *at;
    uint32_t loop, iteration;
    int32_t place, site;
} *lane_cells; /* the last write to each address */
static uint32_t lane_loops, site_loops[MOST_SITES];
static int32_t site_places[MOST_SITES];

#define ITERATION "iteration %u of a simd loop"
static void name_sides(const char *format, uint32_t one, const char *other_format, uint32_t other);

static void touch_lane(const block *b, int64_t offset, int how, int site) {
    const char *at = b->start + offset;
    lanes *l = &now->lanes;
    if (!l->iteration || how == ATOMIC || !site) return;
    if (!lane_cells && !(lane_cells = pages(LANE_CELLS * sizeof *lane_cells))) fatal("no memory");
    if (site_loops[site] != l->loop) site_loops[site] = l->loop, site_places[site] = l->places++;
    size_t slot = ((uintptr_t)at * 0x9E3779B97F4A7C15u) >> 48;
    for (int i = 0; i < LANE_TRIES; ++i, slot = (slot + 1) % LANE_CELLS) {
        const int is_free = lane_cells[slot].loop != l->loop;
        if (!is_free && lane_cells[slot].at != at) continue;
        if (how == WRITE) {
            lane_cells[slot].at = at, lane_cells[slot].loop = l->loop, lane_cells[slot].iteration = l->iteration;
            lane_cells[slot].place = site_places[site], lane_cells[slot].site = site;
        } else if (!is_free && lane_cells[slot].place > site_places[site] &&
                   l->iteration - lane_cells[slot].iteration - 1 < l->most - 1) {
            const visit other = {.site = (uint16_t)lane_cells[slot].site};
            found("race", how, site, b, offset, &other, WRITE, "%s", "");
            if (found_last >= 0) table[found_last].changed += 1;
            name_sides(ITERATION, l->iteration - 1, ITERATION, lane_cells[slot].iteration - 1);
        }
        return;
    }
}

/* Called before a loop of which at most `most` iterations run at a time, in each of them, and after it. */
void noyau_simd(long most) {
    if (mode != GRID) now->lanes = (lanes){.loop = ++lane_loops, .most = (uint32_t)most};
}
void noyau_simd_iteration(void) {
    if (mode == GRID) return;
    if (!now->lanes.loop) noyau_simd(1L << 31); /* a thread of a region and a loop in one */
    now->lanes.iteration += 1;
}
void noyau_simd_end(void) { now->lanes = (lanes){0}; }
