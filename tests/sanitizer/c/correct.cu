// Kernels as tutorials have them, all of them right: a check must be silent on each.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

#define TILE 16

__global__ void add(const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

__global__ void saxpy_grid_stride(float a, const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = a * x[i] + y[i];
}

__global__ void sum_in_shared(const float *x, float *out, int n) {
    __shared__ float partial[256];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    partial[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) partial[t] += partial[t + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, partial[0]);
}

__inline__ __device__ float warp_sum(float v) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffff, v, offset);
    return v;
}

__global__ void sum_by_shuffles(const float *x, float *out, int n) {
    __shared__ float warps[32];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
    v = warp_sum(v);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) warps[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? warps[lane] : 0.0f;
    if (warp == 0) v = warp_sum(v);
    if (threadIdx.x == 0) atomicAdd(out, v);
}

__global__ void matmul_naive(const float *a, const float *b, float *c, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

__global__ void matmul_tiled(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < (k + TILE - 1) / TILE; ++t) {
        int ac = t * TILE + threadIdx.x, br = t * TILE + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < m && ac < k ? a[row * k + ac] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = br < k && col < n ? b[br * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

__global__ void transpose_padded(const float *x, float *out, int rows, int cols) {
    __shared__ float tile[TILE][TILE + 1];
    int i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
    if (i < rows && j < cols) tile[threadIdx.y][threadIdx.x] = x[i * cols + j];
    __syncthreads();
    i = blockIdx.x * TILE + threadIdx.y, j = blockIdx.y * TILE + threadIdx.x;
    if (i < cols && j < rows) out[i * rows + j] = tile[threadIdx.x][threadIdx.y];
}

__global__ void histogram_atomics(const int *x, int *hist, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&hist[x[i]], 1);
}

__global__ void histogram_private(const int *x, int *hist, int n) {
    extern __shared__ int own[];
    for (int b = threadIdx.x; b < 10; b += blockDim.x) atomicExch(&own[b], 0); // a store: the old value is dropped
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 10; b += blockDim.x) atomicAdd(&hist[b], own[b]);
}

__global__ void scan_hillis_steele(const float *x, float *out, int n) {
    __shared__ float two[2][128];
    int t = threadIdx.x, from = 0;
    two[0][t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        two[1 - from][t] = t >= offset ? two[from][t] + two[from][t - offset] : two[from][t];
        from = 1 - from;
        __syncthreads();
    }
    if (t < n) out[t] = two[from][t];
}

__global__ void scan_blelloch(const float *x, float *out, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[2 * t] = 2 * t < n ? x[2 * t] : 0.0f;
    s[2 * t + 1] = 2 * t + 1 < n ? x[2 * t + 1] : 0.0f;
    int offset = 1;
    for (int d = 64; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) s[127] = 0;
    for (int d = 1; d < 128; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            float swap = s[offset * (2 * t + 1) - 1];
            s[offset * (2 * t + 1) - 1] = s[offset * (2 * t + 2) - 1];
            s[offset * (2 * t + 2) - 1] += swap;
        }
    }
    __syncthreads();
    if (2 * t < n) out[2 * t] = s[2 * t];
    if (2 * t + 1 < n) out[2 * t + 1] = s[2 * t + 1];
}

#define RADIUS 3
__constant__ float weights[2 * RADIUS + 1] = {1, 2, 3, 4, 3, 2, 1};
__global__ void stencil_halo(const float *x, float *out, int n) {
    __shared__ float near[64 + 2 * RADIUS];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x + RADIUS;
    near[t] = i < n ? x[i] : 0.0f;
    if (threadIdx.x < RADIUS) {
        near[t - RADIUS] = i >= RADIUS && i - RADIUS < n ? x[i - RADIUS] : 0.0f;
        near[t + blockDim.x] = i + blockDim.x < n ? x[i + blockDim.x] : 0.0f;
    }
    __syncthreads();
    float sum = 0;
    for (int k = -RADIUS; k <= RADIUS; ++k) sum += weights[k + RADIUS] * near[t + k];
    if (i < n) out[i] = sum;
}

__device__ unsigned blocks_done = 0;
__global__ void sum_last_block(const float *x, float *partial, float *out, int n) {
    __shared__ float s[64];
    __shared__ bool is_last;
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int d = 32; d > 0; d /= 2) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        is_last = atomicInc(&blocks_done, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        float sum = 0;
        for (int b = 0; b < gridDim.x; ++b) sum += partial[b];
        out[0] = sum;
        blocks_done = 0;
    }
}

__global__ void softmax_rows(const float *x, float *out, int rows, int cols) {
    extern __shared__ float row_of_it[];
    __shared__ float most, sum;
    const float *in = x + blockIdx.x * cols;
    float m = -INFINITY;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) row_of_it[j] = in[j], m = fmaxf(m, in[j]);
    for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
    if (threadIdx.x == 0) most = m;
    __syncthreads();
    float s = 0;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) s += row_of_it[j] = __expf(row_of_it[j] - most);
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
    if (threadIdx.x == 0) sum = s;
    __syncthreads();
    for (int j = threadIdx.x; j < cols; j += blockDim.x) out[blockIdx.x * cols + j] = row_of_it[j] / sum;
}

__global__ void double_buffered(const float *x, float *out, int n) {
    __shared__ float buffer[2][32];
    int t = threadIdx.x, tiles = n / 32;
    float sum = 0;
    buffer[0][t] = x[t];
    for (int k = 0; k < tiles; ++k) {
        __syncthreads();
        if (k + 1 < tiles) buffer[(k + 1) % 2][t] = x[(k + 1) * 32 + t];
        for (int j = 0; j < 32; ++j) sum += buffer[k % 2][j];
    }
    out[t] = sum;
}

__global__ void vectorised_copy(const float4 *x, float4 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        out[i] = make_float4(v.x * 2, v.y * 2, v.z * 2, v.w * 2);
    }
}

__global__ void compact_with_ballot(const int *x, int *out, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    bool keep = i < n && x[i] > 4;
    unsigned votes = __ballot_sync(0xffffffff, keep);
    int first = 0;
    if (lane == 0) first = atomicAdd(count, __popc(votes));
    first = __shfl_sync(0xffffffff, first, 0);
    if (keep) out[first + __popc(votes & ((1u << lane) - 1))] = x[i];
}

__global__ void warp_synchronous(const float *x, float *out) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    for (int d = 16; d > 0; d /= 2) {
        float v = s[(t + d) % 32];
        __syncwarp();
        s[t] += v;
        __syncwarp();
    }
    out[t] = s[t];
}

__global__ void tiles_of_groups(const float *x, float *out, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    int i = blockIdx.x * block.size() + block.thread_rank();
    float v = i < n ? x[i] : 0.0f;
    for (int o = tile.size() / 2; o > 0; o /= 2) v += tile.shfl_down(v, o);
    if (tile.thread_rank() == 0) atomicAdd(out, v);
}

__global__ void aggregated_by_active(const int *x, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 4) {
        unsigned active = __activemask();
        int leader = __ffs(active) - 1;
        if ((threadIdx.x & 31) == leader) atomicAdd(count, __popc(active));
    }
}

__global__ void max_by_atomics(const float *x, float *out, int n) {
    __shared__ unsigned most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicMax(&most, __float_as_uint(x[i]));
    __syncthreads();
    if (threadIdx.x == 0) out[0] = __uint_as_float(most);
}

template <typename T> __global__ void scale_of(const T *x, T *out, T a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i];
}

void launched_from_host(const float *x, float *out, int n) {
    float *dx, *dout;
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dout, n * sizeof(float));
    cudaMemcpy(dx, x, n * sizeof(float), cudaMemcpyHostToDevice);
    scale_of<float><<<(n + 63) / 64, 64>>>(dx, dout, 3.0f, n);
    cudaDeviceSynchronize();
    cudaMemcpy(out, dout, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(dx);
    cudaFree(dout);
}
