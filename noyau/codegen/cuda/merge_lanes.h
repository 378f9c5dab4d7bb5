/* The states of the threads of a block, merged by halves: the upper half into the lower one, again and again. All
   threads come here, and each gets the result. A warp waits for itself alone: the last 32 states of a block are those of
   one, and where a warp has an item of its own, so are all. */
template <int LANES, class State> __device__ State noyau_merge_lanes(State own)
{
    __shared__ State shared[256];
    State *const states = shared + (LANES > 32 ? 0 : threadIdx.y * 32);
    const int lane = threadIdx.x;
    states[lane] = own;
    for (int half = LANES / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (lane < half) states[lane].merge(states[lane + half]);
    }
    if (LANES > 32) __syncthreads();
    else __syncwarp();
    for (int half = 16; half > 0 && lane < 32; half /= 2) {
        if (lane < half) states[lane].merge(states[lane + half]);
        __syncwarp();
    }
    if (LANES > 32) __syncthreads();
    const State all = states[0];
    if (LANES > 32) __syncthreads(); /* before the next merge takes the memory */
    else __syncwarp();
    return all;
}
