/* The states of the threads of a block, merged by halves: the upper half into the lower one, again and again. All
   threads come here, and each gets the result. The last 32 states are those of one warp, which needs no barrier of the
   block. */
template <int LANES, class State> __device__ State noyau_merge_lanes(State own)
{
    __shared__ State states[LANES];
    const int lane = threadIdx.x;
    states[lane] = own;
    for (int half = LANES / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (lane < half) states[lane].merge(states[lane + half]);
    }
    __syncthreads();
    for (int half = 16; half > 0 && lane < 32; half /= 2) {
        if (lane < half) states[lane].merge(states[lane + half]);
        __syncwarp();
    }
    __syncthreads();
    const State all = states[0];
    __syncthreads(); /* before the next merge takes the memory */
    return all;
}
