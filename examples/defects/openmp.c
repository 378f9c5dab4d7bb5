/* Defects of kernels in C, each beside its mended twin: noyau check examples/defects/openmp.py
   The line of a defect says what it is; the line of the other access says `other`. */
#include <immintrin.h>
#include <omp.h>
#include <stdlib.h>

/* All iterations add to one cell. */
void total_broken(const float *x, double *out, int n) {
    out[0] = 0;
#pragma omp parallel for
    for (int i = 0; i < n; i++)
        out[0] += x[i]; /* defect: race */
}
void total_mended(const float *x, double *out, int n) {
    double sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += x[i];
    out[0] = sum;
}

/* A variable that all threads share, and each means for itself. */
void squares_broken(const float *x, float *out, int n) {
    float t;
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        t = x[i] + 1; /* defect: race */
        out[i] = t * t;
    }
}
void squares_mended(const float *x, float *out, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        float t = x[i] + 1;
        out[i] = t * t;
    }
}

/* Each iteration needs the one before. */
void sums_so_far_broken(const float *x, float *out, int n) {
    out[0] = x[0];
#pragma omp parallel for
    for (int i = 1; i < n; i++)
        out[i] = out[i - 1] + x[i]; /* defect: race */
}
void sums_so_far_mended(const float *x, float *out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) out[i] = sum += x[i];
}

/* One cell in all of them is written twice: by the iteration before the middle, and by that of the middle. */
void rare_broken(const float *x, float *out, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        out[i] = x[i]; /* other */
        if (i == n / 2 + 1)
            out[i - 1] = 2 * x[i]; /* defect: race */
    }
}
void rare_mended(const float *x, float *out, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) out[i] = i == n / 2 && i + 1 < n ? 2 * x[i + 1] : x[i];
}

/* Nobody waits for the first loop. */
void two_loops_broken(const float *x, float *out, int n) {
    float *half = malloc(n * sizeof *half);
#pragma omp parallel
    {
#pragma omp for nowait
        for (int i = 0; i < n; i++) half[i] = x[i] / 2; /* other */
#pragma omp for
        for (int i = 0; i < n; i++)
            out[i] = half[n - 1 - i]; /* defect: race uninitialised */
    }
    free(half);
}
void two_loops_mended(const float *x, float *out, int n) {
    float *half = malloc(n * sizeof *half);
#pragma omp parallel
    {
#pragma omp for
        for (int i = 0; i < n; i++) half[i] = x[i] / 2;
#pragma omp for
        for (int i = 0; i < n; i++) out[i] = half[n - 1 - i];
    }
    free(half);
}

/* Two names, two locks. */
void locks_broken(const int *x, int *hist, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        if (i % 2) {
#pragma omp critical(odd)
            hist[x[i]]++; /* defect: race */
        } else {
#pragma omp critical(even)
            hist[x[i]]++; /* other */
        }
    }
}
void locks_mended(const int *x, int *hist, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
#pragma omp critical(bins)
        hist[x[i]]++;
    }
}

/* One cell too many. */
void differences_broken(const float *x, float *out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = x[i + 1] - x[i]; /* defect: out-of-bounds */
}
void differences_mended(const float *x, float *out, int n) {
    for (int i = 0; i < n; i++) out[i] = i + 1 < n ? x[i + 1] - x[i] : 0;
}

/* The last n % 4 cells are left as they are. */
void fours_broken(const float *x, float *out, int n) { /* defect: unwritten */
    for (int i = 0; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) out[i + k] = 2 * x[i + k];
}
void fours_mended(const float *x, float *out, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) out[i + k] = 2 * x[i + k];
    for (; i < n; i++) out[i] = 2 * x[i];
}

/* Memory that nobody has set. */
void counts_broken(const int *x, int *out, int n) {
    int *bins = malloc(10 * sizeof *bins);
    for (int i = 0; i < n; i++)
        bins[x[i]]++; /* defect: uninitialised */
    for (int b = 0; b < 10; b++) out[b] = bins[b];
    free(bins);
}
void counts_mended(const int *x, int *out, int n) {
    int *bins = calloc(10, sizeof *bins);
    for (int i = 0; i < n; i++) bins[x[i]]++;
    for (int b = 0; b < 10; b++) out[b] = bins[b];
    free(bins);
}

/* A barrier that one thread does not come to. */
void waits_broken(const float *x, float *out, int n) {
#pragma omp parallel
    {
        int t = omp_get_thread_num(), threads = omp_get_num_threads();
        for (int i = t; i < n; i += threads) out[i] = 2 * x[i];
        if (t > 0) {
#pragma omp barrier /* defect: divergent-barrier */
        }
    }
}
void waits_mended(const float *x, float *out, int n) {
#pragma omp parallel
    {
        int t = omp_get_thread_num(), threads = omp_get_num_threads();
        for (int i = t; i < n; i += threads) out[i] = 2 * x[i];
#pragma omp barrier
    }
}

/* Eight at a time, whatever is left: each row ends in the next, and the last one beyond the matrix. */
__attribute__((target("avx"))) void row_sums_broken(const float *x, float *out, int rows, int cols) {
    for (int i = 0; i < rows; i++) {
        __m256 sum = _mm256_setzero_ps();
        float parts[8];
        for (int j = 0; j < cols; j += 8)
            sum = _mm256_add_ps(sum, _mm256_loadu_ps(x + i * cols + j)); /* defect: out-of-bounds */
        _mm256_storeu_ps(parts, sum);
        out[i] = parts[0] + parts[1] + parts[2] + parts[3] + parts[4] + parts[5] + parts[6] + parts[7];
    }
}
__attribute__((target("avx"))) void row_sums_mended(const float *x, float *out, int rows, int cols) {
    for (int i = 0; i < rows; i++) {
        __m256 sum = _mm256_setzero_ps();
        float parts[8], rest = 0;
        int j = 0;
        for (; j + 8 <= cols; j += 8) sum = _mm256_add_ps(sum, _mm256_loadu_ps(x + i * cols + j));
        for (; j < cols; j++) rest += x[i * cols + j];
        _mm256_storeu_ps(parts, sum);
        out[i] = parts[0] + parts[1] + parts[2] + parts[3] + parts[4] + parts[5] + parts[6] + parts[7] + rest;
    }
}
