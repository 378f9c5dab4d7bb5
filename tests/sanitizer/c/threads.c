/* Right and wrong uses of what orders the threads and tasks of OpenMP. A wrong line says so: `race`, `chance` for one
   that only the order in which locks were taken orders, `unset` for a read of what nobody set. The program ends in time, and prints nothing. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

static int sink;
static void use(int value) {
#pragma omp atomic write
    sink = value;
}

/* Doubles whose first byte is the same. */
static void whole_cell(void) {
    double last = 0, none[2] = {M_PI, 0};
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int i = 0; i < 2; ++i) last = 4 * i; /* race */
    use((int)(last + none[1]));
}

/* Locks. */
static omp_lock_t lock, other_lock;
static void locks(void) {
    int count = 0, counted = 0;
#pragma omp parallel for num_threads(3)
    for (int i = 0; i < 9; ++i) {
        omp_set_lock(&lock);
        count += i;
        omp_unset_lock(&lock);
        counted += i; /* race */
    }
    use(count + counted);
}

/* A thread waits under a lock for what another one does under it, and goes on from there. */
static void hand_over(void) {
    int data = 0, is_full = 0, wrong = 0;
#pragma omp parallel sections num_threads(2)
    {
#pragma omp section
        {
            data = 1;
#pragma omp critical(full)
            is_full = 1;
            wrong = 3; /* race */
        }
#pragma omp section
        {
            int is_there = 0;
            while (!is_there) {
#pragma omp critical(full)
                is_there = is_full;
            }
            data = 2;
            wrong = 2; /* race */
        }
    }
    use(data + wrong);
}

/* A lock that is held from before the barrier orders; one that is only taken first by chance does not. */
static void signals(void) {
    int data = 0, early = 0, late = 0, is_passed = 0;
#pragma omp parallel num_threads(2)
    {
        const int first = omp_get_thread_num() == 0;
        if (first) omp_set_lock(&lock);
#pragma omp barrier
        if (first) {
            data = 1;
            omp_unset_lock(&lock);
        } else {
            omp_set_lock(&lock);
            omp_unset_lock(&lock);
            data = 2;
        }
#pragma omp barrier
        if (first) early = 1; /* race */
        omp_set_lock(&other_lock);
        omp_unset_lock(&other_lock);
        if (!first) early = 2; /* race */
#pragma omp barrier
        if (first) late = 1; /* chance */
        for (int is_seen = first; !is_seen;) {
#pragma omp atomic read
            is_seen = is_passed;
        }
        omp_set_lock(&other_lock);
        omp_unset_lock(&other_lock);
        if (first) {
#pragma omp atomic write
            is_passed = 1;
        } else
            late = 2; /* chance */
    }
    use(data + early + late);
}

/* Tasks and what lies on the stack of the thread that makes them. */
static int sum_to(int n) {
    int left = 0, right = 0;
    if (n < 2) return n;
#pragma omp task shared(left)
    left = sum_to(n - 1);
#pragma omp task shared(right)
    right = sum_to(n - 2);
#pragma omp taskwait
    return left + right;
}
static int sum_too_soon(int n) {
    int left = 0;
#pragma omp task shared(left)
    left = n; /* race */
    const int sum = left + 1; /* race */
#pragma omp taskwait
    return sum;
}
static void tasks(void) {
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        use(sum_to(5));
        use(sum_too_soon(5));
    }
}

static void grandchildren(void) {
    int grouped = 0, waited = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    {
#pragma omp taskgroup
        {
#pragma omp task shared(grouped)
            {
#pragma omp task shared(grouped)
                grouped = 1;
            }
        }
        use(grouped);
#pragma omp task shared(waited)
        {
#pragma omp task shared(waited)
            waited = 1; /* race */
        }
#pragma omp taskwait
        use(waited); /* race */
    }
}

static void dependences(void) {
    int x = 0, y = 0, z = 0, sum = 0, wrong = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    {
#pragma omp task depend(out : x) shared(x)
        x = 1;
#pragma omp task depend(in : x) depend(out : y) shared(x, y)
        y = x + 1;
#pragma omp task depend(out : z) shared(y, z, wrong)
        wrong = y + z; /* race */
#pragma omp task depend(in : y) shared(y, wrong)
        wrong = y + 5; /* race */
#pragma omp task depend(out : sum) shared(sum)
        sum = 1;
        for (int k = 0; k < 3; ++k) {
#pragma omp task depend(mutexinoutset : sum) shared(sum)
            sum += k;
        }
#pragma omp task depend(in : sum) shared(sum)
        use(sum);
    }
}

static void reduced_tasks(void) {
    int sum = 0, in_loop = 0, wrong = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    {
#pragma omp taskgroup task_reduction(+ : sum)
        for (int k = 0; k < 4; ++k) {
#pragma omp task in_reduction(+ : sum)
            sum += k;
        }
#pragma omp taskloop reduction(+ : in_loop)
        for (int k = 0; k < 8; ++k) in_loop += k;
#pragma omp taskloop shared(wrong) num_tasks(4)
        for (int k = 0; k < 8; ++k) wrong += k; /* race */
    }
    use(sum == 6 && in_loop == 28 ? wrong : abs(*(volatile int *)0));
}

/* Regions within regions. */
static void nested(void) {
    int total = 0;
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2) reduction(+ : total)
    {
        int mine = 0, shared_by_two = 0;
#pragma omp parallel num_threads(2) reduction(+ : mine)
        {
            mine += 1;
            shared_by_two += 1; /* race */
        }
        total += mine;
    }
    use(total == 4 ? total : abs(*(volatile int *)0));
}

/* Iterations that wait for others, and ordered ones. */
static void waves(void) {
    static int right[12][12], wrong[12][12];
    int last = 0, after = 0;
#pragma omp parallel for ordered(2) num_threads(3)
    for (int i = 1; i < 11; ++i)
        for (int j = 1; j < 11; ++j) {
#pragma omp ordered depend(sink : i - 1, j)
            right[i][j] = right[i - 1][j] + right[i][j - 1];
            wrong[i][j] = wrong[i - 1][j + 1]; /* race */
#pragma omp ordered depend(source)
        }
#pragma omp parallel for ordered schedule(dynamic, 2) num_threads(3)
    for (int i = 0; i < 12; ++i) {
#pragma omp ordered
        last += i;
        after = i; /* race */
    }
    use(right[2][2] + last + after);
}

/* Flags: with a release and an acquire, with fences, and relaxed. */
static void flags(void) {
    int data = 0, flag = 0, fenced = 0, relaxed = 0;
#pragma omp parallel num_threads(2)
    {
        int is_set = 0;
        if (omp_get_thread_num() == 0) {
            data = 1, fenced = 1;
#pragma omp atomic write release
            flag = 1;
#pragma omp flush
#pragma omp atomic write
            flag = 2;
            relaxed = 2; /* race */
        } else {
            while (is_set != 2) {
#pragma omp atomic read
                is_set = flag;
            }
            relaxed += 1; /* race */
#pragma omp flush
            use(data + fenced);
        }
    }
}

/* Target regions and teams, on the host: a critical section excludes the threads of its own team. */
static void offloaded(void) {
    int sum = 0, atomic = 0, held = 0, out[8] = {0}, waited = 0, early = 0;
#pragma omp target teams distribute parallel for map(tofrom : sum, atomic, held, out) reduction(+ : sum)
    for (int i = 0; i < 8; ++i) {
        int own[1] = {i};
        out[i] = own[0];
        sum += own[0];
#pragma omp atomic
        atomic += i;
#pragma omp critical
        held += i; /* race */
    }
#pragma omp target map(tofrom : waited) nowait depend(out : waited)
    waited = 1;
#pragma omp target map(tofrom : early) nowait
    early = 1; /* race */
#pragma omp taskwait depend(in : waited)
    use(waited);
    use(early); /* race */
#pragma omp taskwait
    use(sum + atomic + held + out[3]);
}

/* Lanes: one reads what an earlier one writes further down. */
static void lanes(void) {
    int a[64] = {0}, b[64] = {0}, c[64] = {0};
#pragma omp simd
    for (int i = 1; i < 64; ++i) {
        const int own[1] = {i};
        a[i] = own[0];
        b[i] = a[i - 1];
    }
#pragma omp simd safelen(4)
    for (int i = 4; i < 64; ++i) c[i] = c[i - 4];
#pragma omp simd
    for (int i = 1; i < 64; ++i) c[i] = c[i - 1]; /* race */
    int sum = 0, twice, most = 0;
#pragma omp simd
    for (int i = 0; i < 64; ++i) sum += a[i]; /* race */
#pragma omp simd reduction(max : most)
    for (int i = 0; i < 64; ++i) most = most < a[i] ? a[i] : most;
#pragma omp simd private(twice)
    for (int i = 0; i < 64; ++i) {
        twice = 2 * a[i];
        c[i] = twice;
    }
    use(b[1] + c[1] + sum + most);
}

/* What is private holds nothing at first, but for what an iteration before has set. */
static void private_variables(void) {
    int scale = 2, table[4] = {0}, own = 0, kept = 0, last = 0, given = 3, out[12], sum = 0;
#pragma omp parallel num_threads(3) private(own) firstprivate(given)
    {
        own = omp_get_thread_num();
#pragma omp for private(scale, table, kept) lastprivate(last) schedule(static, 4)
        for (int i = 0; i < 12; ++i) {
            if (i % 4 == 0) kept = given;
            last = kept += own;
            out[i] = scale * i; /* unset */
            for (int k = 0; k < 4; ++k) out[i] += table[k]; /* unset */
        }
    }
    for (int i = 0; i < 12; ++i) sum += out[i];
    use(sum + last);
}

/* Two loops that deal their pieces as they run deal them otherwise. */
static void chains(void) {
    int blocks[12], pieces[12], sums[12];
#pragma omp parallel num_threads(2)
    {
#pragma omp for schedule(static) nowait
        for (int i = 0; i < 12; ++i) blocks[i] = i;
#pragma omp for schedule(static) nowait
        for (int i = 0; i < 12; ++i) sums[i] = blocks[i];
#pragma omp for schedule(dynamic) nowait
        for (int i = 0; i < 12; ++i) pieces[i] = i; /* race */
#pragma omp for schedule(dynamic) nowait
        for (int i = 0; i < 12; ++i) pieces[i] += 1;
    }
    use(pieces[3] + sums[3]);
}

/* A task shares the variable of the loop that makes it, which gcc copies into it. */
static void copied_into_tasks(void) {
    int step, sum = 0, own_sum = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    for (step = 0; step < 3; ++step) { /* race */
#pragma omp task
        {
            const int now = step;
#pragma omp atomic
            sum += now;
        }
#pragma omp task firstprivate(step)
        {
#pragma omp atomic
            own_sum += step;
        }
    }
    use(sum + own_sum);
}

int main(void) {
    omp_init_lock(&lock), omp_init_lock(&other_lock);
    whole_cell(), locks(), hand_over(), signals(), tasks(), grandchildren(), dependences(), reduced_tasks(), nested();
    waves(), flags(), offloaded(), lanes(), private_variables(), chains(), copied_into_tasks();
    omp_destroy_lock(&lock), omp_destroy_lock(&other_lock);
    return 0;
}
