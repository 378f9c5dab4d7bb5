#ifndef NOYAU_WATCHED
/* The meeting of the blocks of a cluster: what each has been given by the others, for a merge and for the one after it,
   and the barriers at which that arrives. Nobody waits for what a block does to memory, as barriers of clusters do. */
struct noyau_meeting {
    uint64_t arrived[2];
    uint32_t states[2][16][8];
};

__device__ __forceinline__ unsigned noyau_shared_address(const void *place, unsigned rank)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(place);
    asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank));
    return at;
}

/* All blocks have begun before one gives another a state. */
static __device__ __forceinline__ void noyau_open(noyau_meeting *meeting)
{
    if (threadIdx.x == 0) {
        for (int at = 0; at < 2; ++at) {
            const unsigned barrier = (unsigned)__cvta_generic_to_shared(meeting->arrived + at);
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" : : "r"(barrier) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
    __cluster_barrier_arrive_relaxed();
    __cluster_barrier_wait();
}

/* The states of the blocks of a cluster, merged by halves, in each of them; `number` counts the merges of a kernel. */
template <int BLOCKS, class State> __device__ State noyau_merge_blocks(State own, noyau_meeting *meeting, int number)
{
    constexpr int WORDS = (sizeof(State) + 3) / 4;
    static_assert(WORDS <= 8 && BLOCKS <= 16, "a meeting has room for 16 states of 32 bytes");
    const int turn = number % 2;
    const unsigned barrier = (unsigned)__cvta_generic_to_shared(meeting->arrived + turn);
    if (threadIdx.x == 0) {
        const unsigned bytes = BLOCKS * WORDS * 4;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
    }
    if (threadIdx.x < BLOCKS) {
        uint32_t words[WORDS];
        memcpy(words, &own, sizeof own);
        const unsigned there = noyau_shared_address(meeting->states[turn][blockIdx.x % BLOCKS], threadIdx.x);
        const unsigned arrived = noyau_shared_address(meeting->arrived + turn, threadIdx.x);
        for (int at = 0; at < WORDS; ++at)
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                         : : "r"(there + 4 * at), "r"(words[at]), "r"(arrived) : "memory");
    }
    for (unsigned is_over = 0, phase = number / 2 % 2; !is_over;)
        asm volatile("{\n.reg .pred over;\nmbarrier.try_wait.parity.shared.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
                     : "=r"(is_over) : "r"(barrier), "r"(phase) : "memory");
    memcpy(&own, meeting->states[turn][threadIdx.x % BLOCKS], sizeof own);
    for (int half = BLOCKS / 2; half > 0; half /= 2) own.merge(own.of_lane(threadIdx.x % 32 + half));
    return own.of_lane(0);
}
#endif
