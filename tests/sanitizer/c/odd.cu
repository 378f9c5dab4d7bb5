// Kernels that crash, hang, or do not fit their grid.
__global__ void crashes(float *out) { *(float *)(size_t)(16 + threadIdx.x) = 1; }
__global__ void never_ends(volatile int *out) {
    while (out[0] == 0) {}
}
__global__ void waits_for_others(int *out) {
    if (threadIdx.x == 0)
        while (atomicAdd(out, 0) == 0) {}
    else
        atomicAdd(out, 1);
}
__global__ void leaves(int *out) { exit(3); }
__global__ void divides(int *out) { out[threadIdx.x] = 7 / (int)threadIdx.x; }
__global__ void mutates(float *x, float *out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x]++;
}
__global__ void two_barriers(float *out) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads(); // the other one
    out[threadIdx.x] = 1;
}
__global__ void wrong_mask(int *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffff, (int)threadIdx.x, 0);
    else out[threadIdx.x] = 0;
    __syncthreads();
}
__global__ void without_its_lane(int *out) { out[threadIdx.x] = __any_sync(1u, 1); }
__global__ void of_another_lane(int *out) {
    out[threadIdx.x] = __shfl_down_sync(0xffffffff, (int)threadIdx.x, 8);
}
__global__ void past_shared(float *out) {
    extern __shared__ float s[];
    s[threadIdx.x + 1] = 1;
    out[threadIdx.x] = s[threadIdx.x + 1];
}
__global__ void same_value(int *out) { out[0] = 1; }
__global__ void counts_down(float *out) { out[(int)threadIdx.x - 1] = 1; }
__global__ void allowed(int *out) {
    out[0] += 1; // noyau: allow(race) an estimate is enough
}
__global__ void fills(float *out) { out[threadIdx.x] = 1; }
void host_reads(const float *x, float *out, int n) {
    float *d;
    cudaMalloc(&d, n * sizeof(float));
    cudaMemcpy(d, x, n * sizeof(float), cudaMemcpyHostToDevice);
    out[0] = d[0];
}
void host_frees_twice(float *out) {
    out[0] = 1;
    float *d;
    cudaMalloc(&d, 4);
    cudaFree(d);
    cudaFree(d);
}
