/* Target regions run on the host, in its own memory, as they do without a device. The teams of a league run one after
   the other, and nothing orders them. */

static int32_t leagues;

static void run_target(void *given) {
    void **const *target = given;
    char *const before = now->frame;
    now->frame = __builtin_frame_address(0);
    ((void (*)(void *))(uintptr_t)target[0])((void *)target[1]);
    now->frame = before, now->teams = 0;
}

/* Runs a construct; from here on, a deferred one outside of a region runs concurrently with the host. */
static void run_beside(void (*run)(void *), void *data, int is_deferred, void **depend) {
    strand *parent = now->strand;
    if (mode == GRID) fatal("a target region within a grid cannot be watched");
    if (is_deferred) begin_threads();
    if (!is_deferred && !depend) {
        run(data);
        return;
    }
    strand *task = begin_strand(parent, TASK, now->number, 0);
    run_strand(task, run, data, depend);
    leave_task(task, parent, !is_deferred);
}

enum { NOWAIT = 1 };
void GOMP_target_ext(int device, void (*run)(void *), size_t count, void **addresses, size_t *sizes,
                     unsigned short *kinds, unsigned flags, void **depend, void **arguments) {
    (void)device, (void)count, (void)sizes, (void)kinds, (void)arguments;
    void *target[2] = {(void *)(uintptr_t)run, addresses};
    run_beside(run_target, target, flags & NOWAIT, depend);
}
static void run_nothing(void *unused) { (void)unused; }
void GOMP_target_update_ext(int device, size_t count, void **addresses, size_t *sizes, unsigned short *kinds,
                            unsigned flags, void **depend) {
    (void)device, (void)count, (void)addresses, (void)sizes, (void)kinds;
    if (depend) run_beside(run_nothing, 0, flags & NOWAIT, depend);
}
void GOMP_target_enter_exit_data(int device, size_t count, void **addresses, size_t *sizes, unsigned short *kinds,
                                 unsigned flags, void **depend) {
    GOMP_target_update_ext(device, count, addresses, sizes, kinds, flags, depend);
}
void GOMP_target_data_ext(int device, size_t count, void **addresses, size_t *sizes, unsigned short *kinds) {
    (void)device, (void)count, (void)addresses, (void)sizes, (void)kinds;
}
void GOMP_target_end_data(void) {}

/* A team of a league: a strand of its own, whose locks exclude only its own threads. */
static strand *league_parent;
static int before_league;

static void begin_league_team(int number, int count) {
    if (number == 0) league_parent = now->strand, before_league = begin_threads();
    now->league = ++leagues, now->teams = count, now->team_number = number;
    now->strand = begin_strand(league_parent, LEAGUE, number, count);
    now->strand->on = now;
}
static void end_league_team(int is_last) {
    strand *ended = now->strand;
    learn(&league_parent->children, &ended->seen), learn(&league_parent->children, &ended->children);
    ended->next = league_parent->ended, league_parent->ended = ended;
    now->strand = league_parent, now->league = 0, now->teams = 0, now->team_number = 0;
    if (!is_last) return;
    join_children(league_parent);
    end_threads(before_league);
}
static int teams_of(unsigned wished) { return wished ? (int)(wished < 64 ? wished : 64) : 3; }

/* A target region asks until there is no further team; variables on its own stack are new for each team. */
_Bool GOMP_teams4(unsigned least, unsigned most, unsigned limit, _Bool is_first) {
    (void)least, (void)limit;
    const int count = teams_of(most);
    const int number = is_first ? 0 : now->team_number + 1;
    if (!is_first) end_league_team(number == count);
    if (number == count) return 0;
    block *stack = now->frame ? stack_at(now->frame) : 0;
    if (stack) clear_stack(stack, now->frame);
    begin_league_team(number, count);
    return 1;
}
void GOMP_teams_reg(void (*run)(void *), void *data, unsigned wished, unsigned limit, unsigned flags) {
    (void)limit, (void)flags;
    const int count = teams_of(wished);
    for (int i = 0; i < count; ++i) {
        begin_league_team(i, count);
        strand *of_it = now->strand;
        now->strand = league_parent;
        run_strand(of_it, run, data, 0);
        now->strand = of_it;
        end_league_team(i + 1 == count);
    }
}

int omp_get_num_devices(void) { return 0; }
int omp_get_initial_device(void) { return 0; }
int omp_get_default_device(void) { return 0; }
int omp_get_device_num(void) { return 0; }
void omp_set_default_device(int device) { (void)device; }
int omp_is_initial_device(void) { return 1; }
int omp_target_is_present(const void *at, int device) {
    (void)device;
    return at != 0;
}
void *omp_target_alloc(size_t bytes, int device) {
    (void)device;
    block *made = heap_block((int64_t)bytes, 64, 1, HERE);
    return made ? made->start : 0;
}
void omp_target_free(void *at, int device) { (void)device, release_block(at, HERE); }
int omp_target_memcpy(void *to, const void *from, size_t bytes, size_t to_offset, size_t from_offset, int to_device,
                      int from_device) {
    (void)to_device, (void)from_device;
    const int site = HERE;
    touch_range((const char *)from + from_offset, (int64_t)bytes, READ, site);
    touch_range((char *)to + to_offset, (int64_t)bytes, WRITE, site);
    __real_memcpy((char *)to + to_offset, (const char *)from + from_offset, bytes);
    return 0;
}
int omp_target_associate_ptr(const void *at, const void *of, size_t bytes, size_t offset, int device) {
    (void)at, (void)of, (void)bytes, (void)offset, (void)device;
    return 0;
}
int omp_target_disassociate_ptr(const void *at, int device) {
    (void)at, (void)device;
    return 0;
}
int omp_get_num_teams(void) { return now->teams ? now->teams : 1; }
int omp_get_team_num(void) { return now->team_number; }
