/* Queries and settings of OpenMP. */

int omp_get_thread_num(void) { return own_number(); }
int omp_get_num_threads(void) { return team_size(); }
int omp_get_max_threads(void) { return wanted_threads; }
int omp_get_num_procs(void) { return wanted_threads; }
int omp_get_active_level(void) { return level_of(now->team); }
int omp_in_parallel(void) { return level_of(now->team) > 0; }
int omp_get_level(void) {
    int level = 0;
    for (const team *t = now->team; t; t = t->outer) level += 1;
    return level;
}
int omp_get_ancestor_thread_num(int level) { return level == omp_get_level() ? own_number() : level ? -1 : 0; }
int omp_get_team_size(int level) { return level == omp_get_level() ? team_size() : level ? -1 : 1; }
int omp_get_thread_limit(void) { return MOST_MEMBERS; }
int omp_get_dynamic(void) { return 0; }
int omp_get_nested(void) { return most_levels > 1; }
int omp_get_max_active_levels(void) { return most_levels; }
int omp_get_supported_active_levels(void) { return 2; }
int omp_get_cancellation(void) { return 0; }
int omp_get_proc_bind(void) { return 0; }
int omp_get_num_places(void) { return 0; }
int omp_get_place_num(void) { return -1; }
int omp_get_max_task_priority(void) { return 0; }
int omp_get_max_teams(void) { return 0; }
int omp_in_final(void) { return now->strand->is_final; }
void omp_set_num_threads(int count) { wanted_threads = count > 0 ? count : 1; }
void omp_set_dynamic(int on) { (void)on; }
void omp_set_nested(int on) { most_levels = on ? 2 : 1; }
void omp_set_max_active_levels(int levels) { most_levels = levels < 2 ? levels < 1 ? 0 : 1 : 2; }
void omp_set_schedule(int kind, int chunk) { (void)kind, (void)chunk; }
void omp_get_schedule(int *kind, int *chunk) { *kind = 1, *chunk = 0; }
void omp_set_num_teams(int count) { (void)count; }
void omp_set_teams_thread_limit(int count) { (void)count; }
double omp_get_wtime(void) {
    struct timeval t;
    gettimeofday(&t, 0);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}
double omp_get_wtick(void) { return 1e-6; }

static void *of_allocator(size_t bytes, size_t align, int fresh, int site) {
    block *made = heap_block((int64_t)bytes, (int64_t)(align ? align : 16), fresh, site);
    return made ? made->start : 0;
}
void *omp_alloc(size_t bytes, uintptr_t from) { return (void)from, of_allocator(bytes, 0, 1, HERE); }
void *omp_aligned_alloc(size_t align, size_t bytes, uintptr_t from) {
    return (void)from, of_allocator(bytes, align, 1, HERE);
}
void *omp_calloc(size_t count, size_t bytes, uintptr_t from) {
    return (void)from, of_allocator(count * bytes, 0, 0, HERE);
}
void *GOMP_alloc(size_t align, size_t bytes, uintptr_t from) { return (void)from, of_allocator(bytes, align, 1, HERE); }
void omp_free(void *at, uintptr_t from) { (void)from, release_block(at, HERE); }
void GOMP_free(void *at, uintptr_t from) { (void)from, release_block(at, HERE); }
