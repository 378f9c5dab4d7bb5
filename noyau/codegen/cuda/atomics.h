/* Merges into cells that others merge into too, each of them whole; a value has the type of its cell. */
template <class T> struct noyau_of_cell { typedef T type; };

template <class T> __device__ __forceinline__ void noyau_atomic_add(T *place, typename noyau_of_cell<T>::type value)
{
    if constexpr (sizeof(T) == 8 && T(1) / 2 == 0) /* whole numbers of 64 bits, which CUDA has of one kind alone */
        atomicAdd((unsigned long long *)place, (unsigned long long)value);
    else
        atomicAdd(place, value);
}

template <class T, int CELLS>
__device__ __forceinline__ void noyau_atomic_add(T *place, const noyau_vector<T, CELLS> &cells)
{
#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 900
    if constexpr (sizeof(T) == 4 && T(1) / 2 != 0 && CELLS % 4 == 0) {
        #pragma unroll
        for (int at = 0; at < CELLS; at += 4)
            atomicAdd((float4 *)(place + at), make_float4(cells.at[at], cells.at[at + 1], cells.at[at + 2], cells.at[at + 3]));
    } else
#endif
    {
        #pragma unroll
        for (int at = 0; at < CELLS; ++at) noyau_atomic_add(place + at, cells.at[at]);
    }
}

/* By comparing: the cell changes where nobody has changed it since. */
template <int BYTES> struct noyau_cell_bits { typedef unsigned type; };
template <> struct noyau_cell_bits<8> { typedef unsigned long long type; };

template <class State, class T>
__device__ __forceinline__ void noyau_atomic_merge(T *place, typename noyau_of_cell<T>::type value)
{
    typedef typename noyau_cell_bits<sizeof(T)>::type bits;
    const State other = {value};
    bits was = 0, before;
    do {
        State both;
        bits next;
        memcpy(&both.s0, &was, sizeof was);
        both.merge(other);
        memcpy(&next, &both.s0, sizeof next);
        before = was;
        was = atomicCAS((bits *)place, before, next);
    } while (was != before);
}

template <class State, class T, int CELLS>
__device__ __forceinline__ void noyau_atomic_merge(T *place, const noyau_vector<T, CELLS> &cells)
{
    #pragma unroll
    for (int at = 0; at < CELLS; ++at) noyau_atomic_merge<State>(place + at, cells.at[at]);
}
