/* Neighbouring vectors of neighbouring threads, where no vector may begin: through shared memory, so that neighbouring
   threads store neighbouring cells. Threads that come here apart from others between them store on their own. It is no
   part of its callers, for aligned vectors are to have their registers. */
template <class T, int CELLS>
__device__ __noinline__ void noyau_store_apart(T *place, noyau_vector<T, CELLS> cells)
{
#ifndef NOYAU_WATCHED
    __shared__ noyau_vector<T, CELLS> vectors[256];
    const unsigned here = __activemask();
    const int first = __ffs(here) - 1, count = __popc(here), own = (int)(threadIdx.x % 32) - first;
    noyau_vector<T, CELLS> *of_warp = vectors + threadIdx.y * blockDim.x + threadIdx.x - own;
    if (here >> first == 0xffffffffu >> (32 - count)) {
        of_warp[own] = cells;
        __syncwarp(here);
        place -= own * CELLS;
        #pragma unroll 1
        for (int at = own; at < count * CELLS; at += count) place[at] = ((const T *)of_warp)[at];
        __syncwarp(here); /* before the next vectors take the memory */
        return;
    }
#endif
    for (int at = 0; at < CELLS; ++at) place[at] = cells.at[at];
}
