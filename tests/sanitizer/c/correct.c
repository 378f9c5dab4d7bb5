/* Kernels with OpenMP as tutorials have them, all of them right: a check must be silent on each. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

void add(const float *x, const float *y, float *out, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) out[i] = x[i] + y[i];
}

void sum_by_reduction(const float *x, double *out, int n) {
    double sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += x[i];
    *out = sum;
}

void sum_by_atomic(const float *x, double *out, int n) {
    double sum = 0;
#pragma omp parallel for schedule(dynamic, 4)
    for (int i = 0; i < n; i++) {
#pragma omp atomic
        sum += x[i];
    }
    *out = sum;
}

void sum_by_critical(const float *x, double *out, int n) {
    double sum = 0;
#pragma omp parallel
    {
        double own = 0;
#pragma omp for schedule(guided)
        for (int i = 0; i < n; i++) own += x[i];
#pragma omp critical(merge)
        sum += own;
    }
    *out = sum;
}

void sum_of_partials(const float *x, double *out, int n) {
    double partial[64] = {0};
    int threads = 1;
#pragma omp parallel
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
#pragma omp single
        threads = all;
        for (int i = me; i < n; i += all) partial[me] += x[i];
    }
    *out = 0;
    for (int t = 0; t < threads; t++) *out += partial[t];
}

void matmul(const double *a, const double *b, double *c, int m, int n, int k) {
#pragma omp parallel for collapse(2)
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
            c[i * n + j] = sum;
        }
}

void jacobi(const double *x, double *out, int n) {
    double *from = malloc(n * sizeof *from), *to = malloc(n * sizeof *to);
    memcpy(from, x, n * sizeof *from);
    memcpy(to, x, n * sizeof *to);
#pragma omp parallel
    for (int step = 0; step < 4; step++) {
#pragma omp for
        for (int i = 1; i < n - 1; i++) to[i] = 0.5 * (from[i - 1] + from[i + 1]);
#pragma omp single
        {
            double *swap = from;
            from = to, to = swap;
        }
    }
    memcpy(out, from, n * sizeof *out);
    free(from);
    free(to);
}

void histogram(const int *x, int *hist, int n) {
#pragma omp parallel
    {
        int own[10] = {0};
#pragma omp for nowait
        for (int i = 0; i < n; i++) own[x[i]]++;
#pragma omp critical
        for (int b = 0; b < 10; b++) hist[b] += own[b];
    }
}

void histogram_of_locks(const int *x, int *hist, int n) {
    omp_lock_t locks[10];
    for (int b = 0; b < 10; b++) omp_init_lock(&locks[b]);
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        omp_set_lock(&locks[x[i]]);
        hist[x[i]]++;
        omp_unset_lock(&locks[x[i]]);
    }
    for (int b = 0; b < 10; b++) omp_destroy_lock(&locks[b]);
}

void scan_in_two_passes(const double *x, double *out, int n) {
    double totals[65] = {0};
#pragma omp parallel
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        int from = n * me / all, to = n * (me + 1) / all;
        double sum = 0;
        for (int i = from; i < to; i++) out[i] = sum += x[i];
        totals[me + 1] = sum;
#pragma omp barrier
#pragma omp single
        for (int t = 1; t <= all; t++) totals[t] += totals[t - 1];
        for (int i = from; i < to; i++) out[i] += totals[me];
    }
}

static long fib_of(int n) {
    long x, y;
    if (n < 2) return n;
#pragma omp task shared(x)
    x = fib_of(n - 1);
#pragma omp task shared(y)
    y = fib_of(n - 2);
#pragma omp taskwait
    return x + y;
}
void fib(long *out, int n) {
#pragma omp parallel
#pragma omp single
    *out = fib_of(n);
}

static long sum_range(const long *x, long from, long to) {
    if (to - from < 8) {
        long sum = 0;
        for (long i = from; i < to; i++) sum += x[i];
        return sum;
    }
    long *both = malloc(2 * sizeof *both), middle = (from + to) / 2;
#pragma omp task
    both[0] = sum_range(x, from, middle);
    both[1] = sum_range(x, middle, to);
#pragma omp taskwait
    long sum = both[0] + both[1];
    free(both);
    return sum;
}
void sum_by_tasks(const long *x, long *out, int n) {
#pragma omp parallel
#pragma omp master
    *out = sum_range(x, 0, n);
}

void pipeline_of_tasks(const double *x, double *out, int n) {
    double *half = malloc(n * sizeof *half);
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < n; i++) {
#pragma omp task depend(out : half[i])
        half[i] = x[i] / 2;
#pragma omp task depend(in : half[i])
        out[i] = half[i] + 1;
    }
    free(half);
}

void sections(const double *x, double *least, double *most, int n) {
#pragma omp parallel sections
    {
#pragma omp section
        {
            double m = x[0];
            for (int i = 1; i < n; i++) m = fmin(m, x[i]);
            *least = m;
        }
#pragma omp section
        {
            double m = x[0];
            for (int i = 1; i < n; i++) m = fmax(m, x[i]);
            *most = m;
        }
    }
}

void ordered_output(const int *x, int *out, int n) {
    int at = 0;
#pragma omp parallel for ordered schedule(dynamic)
    for (int i = 0; i < n; i++) {
        int v = x[i] * 2;
#pragma omp ordered
        out[at++] = v;
    }
}
