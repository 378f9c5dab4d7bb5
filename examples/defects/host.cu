// Defects on the host's side of programs in CUDA C++, each beside its mended twin: noyau check examples/defects/host.cu
// They are warnings (with --strict they fail): the numbers are right, and something is not what it looks like. Neither a
// GPU nor nvcc is needed. The line of a defect says what it is; `other` is the line that has to do with it.
#include <chrono>
#include <cstdio>
#include <sys/time.h>
#include <cuda_runtime.h>

__global__ void add(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + 1;
}
__global__ void strided(const float *x, float *out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = x[i] + 1;
}

const int n = 1600;
double spent;

// A launch returns at once: without waiting, its own time is what is measured.
void timed_broken(const float *x, float *out) {
    auto start = std::chrono::steady_clock::now();
    add<<<13, 128>>>(x, out, n); // other
    auto end = std::chrono::steady_clock::now(); // defect: launch
    spent += std::chrono::duration<double>(end - start).count();
}
void timed_mended(const float *x, float *out) {
    auto start = std::chrono::steady_clock::now();
    add<<<13, 128>>>(x, out, n);
    cudaDeviceSynchronize();
    auto end = std::chrono::steady_clock::now();
    spent += std::chrono::duration<double>(end - start).count();
}

// The same by a clock of one's own; a copy within the device does not wait either.
double seconds() {
    struct timeval now;
    gettimeofday(&now, NULL);
    return now.tv_sec + 1e-6 * now.tv_usec;
}
void copied_broken(const float *x, float *out) {
    double start = seconds();
    add<<<13, 128>>>(x, out, n); // other
    cudaMemcpy(out, x, n * sizeof(float), cudaMemcpyDeviceToDevice);
    spent += seconds() - start; // defect: launch
}
void copied_mended(const float *x, float *out) {
    float last;
    double start = seconds();
    add<<<13, 128>>>(x, out, n);
    cudaMemcpy(&last, out + n - 1, sizeof(float), cudaMemcpyDeviceToHost);
    spent += seconds() - start;
}

// A block for each cell, in a kernel that strides over the grid: 256 times too many threads.
void launched_broken(const float *few, float *out) {
    strided<<<100, 256>>>(few, out, 100); // defect: launch
}
void launched_mended(const float *few, float *out) {
    strided<<<1, 256>>>(few, out, 100);
}

// Blocks of one warp, where any other size would do.
void in_warps_broken(const float *x, float *out) {
    add<<<50, 32>>>(x, out, n); // defect: launch
}
void in_warps_mended(const float *x, float *out) {
    add<<<13, 128>>>(x, out, n);
}

// Blocks that are no multiple of a warp.
void in_hundreds_broken(const float *x, float *out) {
    dim3 block(100);
    add<<<16, block>>>(x, out, n); // defect: launch
}
void in_hundreds_mended(const float *x, float *out) {
    add<<<13, 128>>>(x, out, n);
}

int main() {
    float *x, *out, *few, *less;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMalloc(&few, 100 * sizeof(float));
    cudaMalloc(&less, 100 * sizeof(float));
    cudaMemset(x, 0, n * sizeof(float));
    cudaMemset(few, 0, 100 * sizeof(float));
    timed_broken(x, out), timed_mended(x, out);
    copied_broken(x, out), copied_mended(x, out);
    launched_broken(few, less), launched_mended(few, less);
    in_warps_broken(x, out), in_warps_mended(x, out);
    in_hundreds_broken(x, out), in_hundreds_mended(x, out);
    cudaDeviceSynchronize();
    return spent < 0;
}
