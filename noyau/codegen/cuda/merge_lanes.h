/* The states of the threads of a block, merged by halves: those of a warp by registers, then those of its warps. All
   threads come here, and each gets the result. Where a warp has an item of its own it waits for nobody. */
template <int LANES, class State> __device__ State noyau_merge_lanes(State own)
{
    for (int half = (LANES < 32 ? LANES : 32) / 2; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
    if (LANES > 32) {
        __shared__ State states[LANES > 32 ? LANES / 32 : 1];
        if (threadIdx.x % 32 == 0) states[threadIdx.x / 32] = own;
        __syncthreads();
        own = states[threadIdx.x % (LANES > 32 ? LANES / 32 : 1)];
        for (int half = LANES / 64; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
        __syncthreads(); /* before the next merge takes the memory */
    }
    return own.of_lane(0);
}
