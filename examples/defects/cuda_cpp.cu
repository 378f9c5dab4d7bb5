// Defects of kernels in CUDA C++, each beside its mended twin: noyau check examples/defects/cuda_cpp.py
// No GPU and no nvcc is needed. The line of a defect says what it is; the line of the other access says `other`.
#include <cuda_runtime.h>

// A sum without a guard: the last block goes past the end.
__global__ void add_broken(const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i] + y[i]; // defect: out-of-bounds
}
__global__ void add_mended(const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

// The grid is rounded down: the last n % 64 cells are never written.
__global__ void twice_broken(const float *x, float *out, int n) { // defect: unwritten
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
__global__ void twice_mended(const float *x, float *out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = 2 * x[i];
}

// A block for each cell: right, and 256 times too many threads.
__global__ void strided_broken(const float *x, float *out, int n) { // defect: launch
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = 2 * x[i];
}
__global__ void strided_mended(const float *x, float *out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = 2 * x[i];
}

// All threads count in one cell.
__global__ void count_broken(int *total) {
    total[0] += 1; // defect: race
}
__global__ void count_mended(int *total) { atomicAdd(total, 1); }

// A histogram: two threads may meet in a bin.
__global__ void histogram_broken(const int *x, int *hist, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) hist[x[i]] += 1; // defect: race
}
__global__ void histogram_mended(const int *x, int *hist, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&hist[x[i]], 1);
}

// Neighbours are read before everyone has written.
__global__ void reversed_broken(const float *x, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    out[blockIdx.x * 64 + t] = s[63 - t]; // defect: uninitialised
}
__global__ void reversed_mended(const float *x, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    out[blockIdx.x * 64 + t] = s[63 - t];
}

// A tree of sums without the barrier between its levels.
__global__ void sum_broken(const float *x, float *out, int n) {
    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2)
        if (t < d) s[t] += s[t + d]; // defect: race
    if (t == 0) atomicAdd(out, s[0]);
}
__global__ void sum_mended(const float *x, float *out, int n) {
    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, s[0]);
}

// A barrier in one branch only.
__global__ void smooth_broken(const float *x, float *out, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) {
        s[threadIdx.x] = x[i];
        __syncthreads(); // defect: divergent-barrier
        out[i] = threadIdx.x > 0 ? s[threadIdx.x - 1] : s[threadIdx.x];
    }
}
__global__ void smooth_mended(const float *x, float *out, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) s[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) out[i] = threadIdx.x > 0 ? s[threadIdx.x - 1] : s[threadIdx.x];
}

// Who has nothing to do leaves before the shuffles.
__global__ void warp_sum_broken(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d); // defect: divergent-barrier
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
__global__ void warp_sum_mended(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}

// The last block reads what others may not have made visible.
__device__ unsigned finished = 0;
__global__ void last_block_broken(const float *x, float *partial, float *out, int n) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = blockIdx.x; i < n; i += gridDim.x) sum += x[i];
        partial[blockIdx.x] = sum; // other
        is_last = atomicAdd(&finished, 1u) == gridDim.x - 1;
        if (is_last) {
            float all = 0;
            for (int b = 0; b < gridDim.x; ++b) all += partial[b]; // defect: race
            out[0] = all;
        }
    }
}
__global__ void last_block_mended(const float *x, float *partial, float *out, int n) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = blockIdx.x; i < n; i += gridDim.x) sum += x[i];
        partial[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicAdd(&finished, 1u) == gridDim.x - 1;
        if (is_last) {
            float all = 0;
            for (int b = 0; b < gridDim.x; ++b) all += partial[b];
            out[0] = all;
        }
    }
}

// A race on one cell in many: two neighbours of one boundary write it.
__global__ void rare_broken(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];             // other
    if (i == n / 2) out[i - 1] = x[i] + 1; // defect: race
}
__global__ void rare_mended(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i == n / 2 - 1 ? x[i + 1] + 1 : x[i];
}

// Rows that are read four numbers at a time, whatever is left: each ends in the next, the last one beyond the matrix.
__global__ void row_sums_broken(const float *x, float *out, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int j = 0; j < cols; j += 4) {
        const float *at = x + row * cols + j;
        sum += at[0] + at[1] + at[2] + at[3]; // defect: out-of-bounds
    }
    out[row] = sum;
}
__global__ void row_sums_mended(const float *x, float *out, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int j = 0; j < cols; ++j) sum += x[row * cols + j];
    out[row] = sum;
}

// The host's side: a vector in four streams, a quarter each, and nobody does the rest.
void streams_broken(const float *x, float *out, int n) { // defect: unwritten
    float *dx, *dout;
    int part = n / 4;
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dout, n * sizeof(float));
    for (int k = 0; k < 4; ++k) {
        cudaStream_t stream;
        cudaStreamCreate(&stream);
        cudaMemcpyAsync(dx + k * part, x + k * part, part * sizeof(float), cudaMemcpyHostToDevice, stream);
        twice_mended<<<4, 64, 0, stream>>>(dx + k * part, dout + k * part, part);
    }
    cudaDeviceSynchronize();
    cudaMemcpy(out, dout, 4 * part * sizeof(float), cudaMemcpyDeviceToHost);
}
void streams_mended(const float *x, float *out, int n) {
    float *dx, *dout;
    int part = (n + 3) / 4;
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dout, n * sizeof(float));
    for (int k = 0; k < 4; ++k) {
        int from = k * part, count = min(part, n - from);
        if (count <= 0) break;
        cudaMemcpyAsync(dx + from, x + from, count * sizeof(float), cudaMemcpyHostToDevice);
        twice_mended<<<4, 64>>>(dx + from, dout + from, count);
    }
    cudaMemcpy(out, dout, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(dx);
    cudaFree(dout);
}

// The host's side: a kernel in one stream, and a copy of its result in another, which waits for no event of the first.
void events_broken(const float *x, float *out, int n) {
    float *dx, *dout;
    cudaStream_t kernels, copies;
    cudaStreamCreate(&kernels);
    cudaStreamCreate(&copies);
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dout, n * sizeof(float));
    cudaMemcpyAsync(dx, x, n * sizeof(float), cudaMemcpyHostToDevice, kernels);
    strided_mended<<<(n + 63) / 64, 64, 0, kernels>>>(dx, dout, n);
    cudaMemcpyAsync(out, dout, n * sizeof(float), cudaMemcpyDeviceToHost, copies); // defect: race
    cudaDeviceSynchronize();
}
void events_mended(const float *x, float *out, int n) {
    float *dx, *dout;
    cudaStream_t kernels, copies;
    cudaEvent_t computed;
    cudaStreamCreate(&kernels);
    cudaStreamCreate(&copies);
    cudaEventCreate(&computed);
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dout, n * sizeof(float));
    cudaMemcpyAsync(dx, x, n * sizeof(float), cudaMemcpyHostToDevice, kernels);
    strided_mended<<<(n + 63) / 64, 64, 0, kernels>>>(dx, dout, n);
    cudaEventRecord(computed, kernels);
    cudaStreamWaitEvent(copies, computed);
    cudaMemcpyAsync(out, dout, n * sizeof(float), cudaMemcpyDeviceToHost, copies);
    cudaDeviceSynchronize();
}
