#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
__device__ float twice(const float *x, int i) {
    return 2 * x[i];
}
__global__ void outside(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = twice(x, i);
}
__global__ void outside_shared(float *out) {
    __shared__ float s[64];
    s[threadIdx.x + 1] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
__global__ void misaligned(float *out) {
    *(float *)((char *)out + 2) = 1.0f;
}
__global__ void raced(const float *x, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    out[t] = s[63 - t];
}
__global__ void raced_writes(float *out) {
    __shared__ float s[1];
    s[0] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[0];
}
__global__ void unset(const float *x, float *out) {
    out[threadIdx.x] = x[threadIdx.x];
}
__global__ void unset_shared(float *out) {
    __shared__ float s[64];
    if (threadIdx.x < 63) s[threadIdx.x] = 0;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
__global__ void divergent(float *out, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) {
        __syncthreads();
        out[i] = 1;
    }
}
__global__ void shuffled(float *out, int n) {
    if (threadIdx.x >= n) return;
    out[threadIdx.x] = __shfl_down_sync(0xffffffff, out[threadIdx.x], 1);
}
__global__ void clean(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = twice(x, i);
}
int main(int argc, char **argv) {
    int n = 100;
    float *x, *out, host[128] = {0};
    cudaMalloc(&x, n * 4);
    cudaMalloc(&out, n * 4);
    const char *w = argv[1];
    if (strcmp(w, "unset")) cudaMemcpy(x, host, n * 4, cudaMemcpyHostToDevice);
    if (strcmp(w, "unset")) cudaMemset(out, 0, n * 4);
    if (!strcmp(w, "outside")) outside<<<2, 64>>>(x, out, n);
    if (!strcmp(w, "outside_shared")) outside_shared<<<1, 64>>>(out);
    if (!strcmp(w, "misaligned")) misaligned<<<1, 1>>>(out);
    if (!strcmp(w, "raced")) raced<<<1, 64>>>(x, out);
    if (!strcmp(w, "raced_writes")) raced_writes<<<1, 64>>>(out);
    if (!strcmp(w, "unset")) unset<<<1, 64>>>(x, out);
    if (!strcmp(w, "unset_shared")) unset_shared<<<1, 64>>>(out);
    if (!strcmp(w, "divergent")) divergent<<<2, 64>>>(out, n);
    if (!strcmp(w, "shuffled")) shuffled<<<1, 32>>>(out, 20);
    if (!strcmp(w, "clean")) clean<<<2, 64>>>(x, out, n);
    cudaError_t e = cudaDeviceSynchronize();
    cudaMemcpy(host, out, n * 4, cudaMemcpyDeviceToHost);
    printf("%s %s %g\n", w, cudaGetErrorString(e), host[1]);
    cudaFree(x);
    if (!strcmp(w, "clean")) cudaFree(out);
    return 0;
}
