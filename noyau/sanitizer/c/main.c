/* One run: a file contains its input, its findings go to another, and its arrays to a third. */

void noyau_entry(void **arguments) __attribute__((weak)); /* the call, generated below the user's text */
int __real_main(int count, char **words, char **environment) __attribute__((weak)); /* of a whole program */

enum { MOST_ARGUMENTS = 256, ON_STACK = 1 << 30 };
static void *arguments[MOST_ARGUMENTS];
static int64_t numbers[MOST_ARGUMENTS][2];
static int argument_count;
static int32_t argument_blocks[MOST_ARGUMENTS]; /* -1 for a number */
static const char *found_path, *arrays_path;
static uintptr_t program_base;
static int chosen, own_count;
static char **own_words; /* of a whole program: its arguments */
int noyau_chosen(void) { return chosen; }
static int is_closing;
static fiber program;

static void spell_owner(char *into, size_t room, uint32_t owner) {
    if (!owner) {
        *into = 0;
    } else if (owner == BY_COPY) {
        snprintf(into, room, "a copy that was not waited for");
    } else if (mode == GRID || is_of_host) {
        const uint32_t b = (owner - 1) / grid_threads, t = (owner - 1) % grid_threads;
        const triple at = thread_places[t];
        if (grid_shape.y * grid_shape.z * block_shape.y * block_shape.z == 1)
            snprintf(into, room, "thread %u of block %u", at.x, b);
        else
            snprintf(into, room, "thread (%u, %u, %u) of block (%u, %u, %u)", at.x, at.y, at.z, b % grid_shape.x,
                     b / grid_shape.x % grid_shape.y, b / grid_shape.x / grid_shape.y);
    } else {
        const strand *s = strands[owner];
        if (s->kind == MEMBER) snprintf(into, room, "thread %d of %d", s->number, s->of);
        else if (s->kind == THREAD) snprintf(into, room, "thread %d", s->number);
        else if (s->kind == LEAGUE) snprintf(into, room, "team %d of %d", s->number, s->of);
        else snprintf(into, room, s->kind == TASK ? "a task" : "the main thread");
    }
}

static char owners[MOST_FOUND][2][96];
static const char *refused; /* the reason for which the run was given up */
static int refused_site;

/* The number of a block, since lists of blocks move as they grow. */
static int32_t number_of(const block *b) {
    if (b >= globals && b < globals + global_count) return -2 - (int)(b - globals);
    if (b >= blocks && b < blocks + block_count) return (int)(b - blocks);
    return b && b->kind == STACK ? ON_STACK : -1;
}
static const block *block_of(int32_t number) {
    if (number == ON_STACK) return &main_stack;
    return number >= 0 ? blocks + number : number <= -2 ? globals - 2 - number : 0;
}

/* How far apart the current thread of a grid and another are: see `finding`. */
static int reach_of(const visit *other) {
    if (mode != GRID || is_of_host || !other || !other->owner || other->owner == BY_COPY) return 3;
    const uint32_t their_block = (other->owner - 1) / grid_threads, thread = (other->owner - 1) % grid_threads;
    return their_block != grid_block ? 2 : thread / WARP != (uint32_t)now->number / WARP;
}

static void name_owners(finding *f, const visit *other) {
    char(*both)[96] = owners[f - table];
    f->owner = mode == GRID ? grid_block * grid_threads + (uint32_t)now->number + 1
               : now->strand && mode == THREADS ? now->strand->owner : 0;
    f->reach = reach_of(other);
    spell_owner(both[0], 96, f->owner);
    if (is_of_host) snprintf(both[0], 96, "the host");
    spell_owner(both[1], 96, other ? other->owner : 0);
}

static void found(const char *kind, int how, int site, const block *b, int64_t offset, const visit *other,
                  int other_how, const char *format, ...) {
    const int other_site = other ? other->site : 0;
    const int32_t number = number_of(b);
    found_last = -1;
    for (int i = 0; i < found_count; ++i) {
        finding *f = table + i;
        if (f->site == site && f->other_site == other_site && f->how == how && f->other_how == other_how &&
            !strcmp(f->kind, kind)) {
            if (f->access != accesses) f->count += 1; /* an access may have several cells */
            f->access = accesses, found_last = i;
            if (reach_of(other) <= f->reach) return;
            f->block = number, f->offset = offset, f->launch = launch_now; /* the first one of those that reach farthest */
            name_owners(f, other);
            return;
        }
    }
    if (found_count == MOST_FOUND) {
        return;
    }
    finding *f = table + found_count;
    *f = (finding){.how = how, .other_how = other_how, .site = site, .other_site = other_site, .block = number,
                   .offset = offset, .count = 1, .access = accesses, .launch = launch_now};
    snprintf(f->kind, sizeof f->kind, "%s", kind);
    va_list rest;
    va_start(rest, format);
    vsnprintf(f->words, sizeof f->words, format, rest);
    va_end(rest);
    name_owners(f, other);
    found_last = found_count++;
}

/* Names the sides of the last finding, if they are not strands. */
static void name_sides(const char *format, uint32_t one, const char *other_format, uint32_t other) {
    if (found_last < 0 || table[found_last].count > 1) return;
    snprintf(owners[found_last][0], 96, format, one);
    snprintf(owners[found_last][1], 96, other_format, other);
    table[found_last].reach = 3;
}

static uintptr_t pc_of(int site) { return site ? (uintptr_t)sites[site] - program_base : 0; }

/* Writes, for each region, its begin and its grid; for each block, its description in a finding; then the writes. */
static void write_map(FILE *out) {
    if (!is_mapping) return;
    const int64_t kept = write_count < MOST_WRITES ? write_count : MOST_WRITES;
    for (int i = 0; i < region_count && i < MOST_REGIONS; ++i) {
        const uint32_t *g = regions[i].grid;
        fprintf(out, "R\t%llx\t%u\t%u\t%u\t%u\t%u\t%u\n", (unsigned long long)((uintptr_t)regions[i].pc - program_base),
                g[0], g[1], g[2], g[3], g[4], g[5]);
    }
    for (int64_t i = 0; i < kept; ++i) {
        const block *b = block_of(writes[i].block);
        if (!i || writes[i].block != writes[i - 1].block)
            fprintf(out, "B\t%d\t%s\t%lld\t%lld\t%llx\n", writes[i].block, b->name, (long long)b->bytes, unit_of(b),
                    (unsigned long long)pc_of(b->site));
        fprintf(out, "W\t%d\t%d\t%lld\t%u\n", writes[i].region, writes[i].block, (long long)writes[i].offset,
                writes[i].owner);
    }
    if (kept < write_count) fprintf(out, "C\t%d\n", writes[MOST_WRITES - 1].region); /* the map is cut from there on */
}

static void write_found(void) {
    FILE *out = fopen(found_path, "w");
    if (!out) fatal("what was found cannot be written");
    if (mode == GRID) count_launch(); /* the launch is cut short */
    if (refused) fprintf(out, "U\t%llx\t%s\n", (unsigned long long)pc_of(refused_site), refused);
    for (int i = 0; i < MOST_ALONE && alone[i].run; ++i)
        if (!alone[i].has_team) fprintf(out, "O\t%llx\n", (unsigned long long)((uintptr_t)alone[i].run + 1 - program_base));
        else fprintf(out, "T\t%llx\n", (unsigned long long)((uintptr_t)alone[i].run + 1 - program_base));
    fprintf(out, "S\t%lld\t%d\t%lld\t%lld\n", (long long)accesses, launches, (long long)launched, (long long)idle);
    for (int i = 0; i < launch_count; ++i) {
        const launch *l = launch_table + i;
        fprintf(out, "L\t%llx\t%u\t%u\t%u\t%u\t%u\t%u\t%lld\t%lld\t%d\t%lld\t%lld\t%lld\t%llu\n", (unsigned long long)pc_of(l->site),
                l->grid.x, l->grid.y, l->grid.z, l->block.x, l->block.y, l->block.z, (long long)l->idle, (long long)l->cells,
                l->count, (long long)l->accesses, (long long)l->blocks, (long long)l->watched, (unsigned long long)l->digest);
    }
    for (int i = 0; i < found_count; ++i) {
        const finding *f = table + i;
        const block *b = block_of(f->block);
        if (!f->count) continue;
        fprintf(out, "F\t%s\t%d\t%d\t%llx\t%llx\t%s\t%lld\t%lld\t%lld\t%llx\t%lld\t%lld\t%d\t%d\t%s\t%s\t%s\n", f->kind, f->how,
                f->other_how, (unsigned long long)pc_of(f->site), (unsigned long long)pc_of(f->other_site),
                b ? b->name : "", (long long)f->offset, (long long)(b ? b->bytes : 0),
                b ? unit_of(b) : 0,
                (unsigned long long)(b ? pc_of(b->site) : 0), (long long)f->count, (long long)f->changed, f->launch, f->reach,
                owners[i][0], owners[i][1], f->words);
    }
    for (int i = 1; i < site_count; ++i)
        if (has_accessed[i]) fprintf(out, "A\t%llx\n", (unsigned long long)pc_of(i));
    write_map(out);
    fclose(out);
}

static void check_outputs(void) {
    for (int i = 0; i < argument_count; ++i) {
        if (argument_blocks[i] < 0) continue;
        block *b = blocks + argument_blocks[i];
        int is_told = 0;
        for (int k = 0; k < found_count; ++k) is_told |= table[k].block == argument_blocks[i] && table[k].kind[0] == 'o';
        for (int64_t k = 1; k <= GUARD_LEAST && !is_told; ++k) {
            const int before = b->start[-k] != (char)0xCB;
            if (!before && b->start[b->bytes + k - 1] == (char)0xCB) continue;
            found("out-of-bounds", WRITE, 0, b, before ? -k : b->bytes + k - 1, 0, 0, "%s", "unseen");
            is_told = 1;
        }
        if (!b->is_output || !b->is_fresh) continue;
        int64_t missed = 0, first = -1;
        const int64_t unit = b->unit ? b->unit : 1;
        for (int64_t at = 0; at + unit <= b->bytes; at += unit) {
            if (is_hole(b, at, unit, IS_WRITTEN) && !missed++) first = at;
        }
        if (missed) {
            found("unwritten", WRITE, 0, b, first, 0, i, "%s", "");
            if (found_last >= 0) table[found_last].count = missed;
        }
    }
}

static void write_arrays(void) {
    FILE *out = fopen(arrays_path, "wb");
    if (!out) fatal("the arrays cannot be written");
    for (int i = 0; i < argument_count; ++i)
        if (argument_blocks[i] >= 0 && blocks[argument_blocks[i]].bytes)
            fwrite(blocks[argument_blocks[i]].start, 1, (size_t)blocks[argument_blocks[i]].bytes, out);
    fclose(out);
}

/* The results of a call, which its own code writes into a file. */
static FILE *result;
void noyau_result(const void *at, int64_t bytes) {
    if (!result && !(result = fopen("result", "wb"))) fatal("the result cannot be written");
    fwrite(at, 1, (size_t)bytes, result);
}

static _Noreturn void refuse(const char *what, int site) {
    refused = what, refused_site = site, pending.number = -1;
    if (found_path) stop_run();
    fprintf(stderr, "noyau: %s\n", what);
    _exit(97);
}

/* Refuses a call that a stand-in cannot perform; `words` need not stay. */
void noyau_refuse(const char *words) { refuse(strdup(words), last_site); }

static void stop_run(void) {
    if (!is_closing++) {
        write_found();
        if (is_program) fflush(0);
    }
    _exit(3);
}

/* Ends the run from outside; for a running grid, reports how much of it ran. */
static _Noreturn void end_early(const char *words) {
    static char in_grid[160];
    if (mode != GRID) refuse(words, last_site);
    snprintf(in_grid, sizeof in_grid, "%s: %u of %u blocks of this launch ran", words, blocks_ended,
             grid_shape.x * grid_shape.y * grid_shape.z);
    refuse(in_grid, launch_site);
}

static void on_signal(int number) {
    const char *words = number == SIGPROF ? "it does not end" : number == SIGABRT ? "it aborts" : "it crashes";
    if (is_program && (number == SIGINT || number == SIGTERM || number == SIGPROF)) {
        signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN); /* another signal must not cut off the output */
        end_early(number == SIGPROF ? "it does not end within its time" : "it was interrupted");
    }
    if (number == SIGFPE) words = "it divides by zero, or overflows";
    pending.number = -1;
    found("crash", READ, last_site, 0, 0, 0, READ, "%s", words);
    stop_run();
}

static void on_exit_of_it(void) {
    if (is_closing) return;
    if (is_program) { /* a program ends so; its status is passed on */
        settle_pending();
        is_closing = 1;
        write_found();
        return;
    }
    found("crash", READ, last_site, 0, 0, 0, READ, "%s", "it ends its process");
    stop_run();
}

static void catch_signals(long limit_ms) {
    static char stack[1 << 16];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) sigaction(numbers[i], &action, 0);
    if (is_program) sigaction(SIGINT, &action, 0), sigaction(SIGTERM, &action, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the checking process is gone */
    const struct itimerval limit = {{0, 0}, {limit_ms / 1000, limit_ms % 1000 * 1000}};
    setitimer(ITIMER_PROF, &limit, 0);
    atexit(on_exit_of_it);
}

static int find_program(struct dl_phdr_info *info, size_t bytes, void *unused) {
    (void)bytes, (void)unused;
    program_base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) *p = info->dlpi_phdr + i;
        if (p->p_type == PT_LOAD && p->p_flags & PF_W)
            data_start = (char *)(program_base + p->p_vaddr), data_end = data_start + p->p_memsz;
        if (p->p_type == PT_TLS)
            tls_block.start = info->dlpi_tls_data, tls_block.bytes = (int64_t)p->p_memsz;
    }
    return 1; /* the first is the program itself */
}

static void add_array(const char *line, FILE *in) {
    (void)in;
    long long bytes;
    int unit, output, filled; /* output: 1 if the call should write it, 2 if it lies on a device */
    char name[64] = "";
    if (sscanf(line, "array %lld %d %d %d %63s", &bytes, &unit, &output, &filled, name) != 5) fatal("a bad array");
    block *b = allocate(bytes, 256, ARGUMENT, !filled);
    if (!b) fatal("there is no room for an argument");
    b->unit = unit, b->is_output = output == 1, b->is_of_device = output == 2;
    snprintf(b->name, sizeof b->name, "%s", name);
    argument_blocks[argument_count++] = (int32_t)(b - blocks);
}

static void add_global(const char *line) {
    unsigned long long offset;
    long long bytes;
    int is_tls, gap;
    char name[64] = "";
    if (sscanf(line, "global %llx %lld %d %d %63s", &offset, &bytes, &is_tls, &gap, name) != 5) fatal("a bad global");
    block *b = add_block(&globals, &global_count, &global_room);
    b->start = is_tls ? tls_block.start + offset : (char *)(program_base + offset);
    b->bytes = bytes, b->gap = gap, b->kind = is_tls ? SHARED : GLOBAL, b->is_fresh = (int8_t)(is_tls && *name != '?'); /* the compiler's own guards hold values */
    snprintf(b->name, sizeof b->name, "%s", name);
}

static int by_start(const void *a, const void *b) {
    const block *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static void read_given(const char *path) {
    FILE *in = fopen(path, "rb");
    char line[512];
    long limit_ms = 5000;
    unsigned long long seed = 1, low, high;
    long long most_mib, of_launch, of_all;
    if (!in) fatal("what is to be run cannot be read");
    while (fgets(line, sizeof line, in) && strcmp(line, "data\n")) {
        if (argument_count == MOST_ARGUMENTS) fatal("more than 256 arguments");
        if (sscanf(line, "threads %d plan %d seed %llu limit %ld", &wanted_threads, &plan, &seed, &limit_ms) == 4) {
            plan_seed = seed;
        } else if (sscanf(line, "chosen %d", &chosen) == 1) {
            is_program = chosen < 0;
        } else if (sscanf(line, "map %d fill %d", &is_mapping, &shared_fill) == 2) {
        } else if (sscanf(line, "memory %lld watched %lld %lld", &most_mib, &of_launch, &of_all) == 3) {
            most_memory_mib = most_mib, watched_of_launch = of_launch, watched_of_all = of_all;
        } else if (!strncmp(line, "array ", 6)) {
            add_array(line, in);
        } else if (!strncmp(line, "global ", 7)) {
            add_global(line);
        } else if (sscanf(line, "number %llx %llx", &low, &high) == 2) {
            numbers[argument_count][0] = (int64_t)low, numbers[argument_count][1] = (int64_t)high;
            argument_blocks[argument_count++] = -1;
        } else {
            long long shared;
            if (sscanf(line, "grid %u %u %u %u %u %u %lld", &given_grid.x, &given_grid.y, &given_grid.z, &given_block.x,
                       &given_block.y, &given_block.z, &shared) == 7)
                given_shared = shared;
        }
    }
    for (int i = 0; i < argument_count; ++i) {
        const int32_t at = argument_blocks[i];
        arguments[i] = at < 0 ? (void *)numbers[i] : blocks[at].start;
        if (at >= 0 && !blocks[at].is_fresh && blocks[at].bytes &&
            fread(blocks[at].start, 1, (size_t)blocks[at].bytes, in) != (size_t)blocks[at].bytes)
            fatal("the data of an argument is cut off");
    }
    fclose(in);
    qsort(globals, (size_t)global_count, sizeof *globals, by_start);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    catch_signals(limit_ms);
}

static void run_program(void *unused) {
    (void)unused;
    if (is_program) exit(__real_main(own_count, own_words, environ));
    noyau_entry(arguments);
    settle_pending();
    mode = SERIAL;
    check_outputs();
    is_closing = 1;
    fflush(0);
    write_found();
    write_arrays();
    _exit(0);
}

static int given_count;
static char **given_words;

__attribute__((constructor(101))) static void remember_words(int count, char **words) {
    given_count = count, given_words = words;
}

/* Called before the first thread begins: before main(), or in a constructor of the user's. */
static void open_run(void) {
    if (given_count < 4) fatal("it is run by noyau");
    found_path = given_words[2], arrays_path = given_words[3], own_count = given_count - 4, own_words = given_words + 4;
    dl_iterate_phdr(find_program, 0);
    if (tls_block.bytes) {
        tls_image = __real_malloc((size_t)tls_block.bytes);
        main_tls = __real_malloc((size_t)tls_block.bytes);
        if (!tls_image || !main_tls) fatal("no memory");
        __real_memcpy(tls_image, tls_block.start, (size_t)tls_block.bytes);
    }
    read_given(given_words[1]);
    tick(&main_strand);
    main_fiber.own_tls = main_tls;
    program_fiber = scheduler = &main_fiber;
}

/* Replaces main(), which a whole program has, and the text of a kernel may have. */
int __wrap_main(void) {
    if (!program_fiber) open_run();
    main_stack.start = pages(MAIN_STACK_BYTES);
    if (!main_stack.start) fatal("no memory");
    main_stack = stack_block(main_stack.start, MAIN_STACK_BYTES);
    program = (fiber){.stack = main_stack.start, .run = run_program, .state = RUNS, .strand = &main_strand};
    program.own_tls = main_tls;
    program.top = first_top(main_stack.start + MAIN_STACK_BYTES, begin_fiber);
    program_fiber = scheduler = &program;
    switch_to(&program);
    return 1;
}
