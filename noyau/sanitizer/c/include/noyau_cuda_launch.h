/* Launches, and recorded launches: graphs. */
#ifndef NOYAU_CUDA_LAUNCH_H
#define NOYAU_CUDA_LAUNCH_H

/* Work to be done, now or by a graph. */
struct noyau_task {
    virtual void run() = 0;
    virtual ~noyau_task() {}
};
template <class F> struct noyau_task_of : noyau_task {
    F what;
    NOYAU_UNSEEN noyau_task_of(F what) : what(what) { noyau_device_map(this); }
    NOYAU_UNSEEN void run() override { what(); }
};
struct CUgraphNode_st {
    noyau_task *task;
    CUgraphNode_st *next;
};
struct CUgraph_st {
    CUgraphNode_st *first = nullptr, *last = nullptr;
    bool is_open = false; /* it is being recorded */
    size_t count = 0;
    NOYAU_UNSEEN CUgraphNode_st *add(noyau_task *task) {
        CUgraphNode_st *made = new CUgraphNode_st{task, nullptr};
        last = (last ? last->next : first) = made, ++count;
        return made;
    }
};
struct noyau_history { uint32_t seen[64]; };
extern "C" {
int noyau_stream_new(int blocks);
int noyau_stream_begin(int stream, int is_copy);
void noyau_stream_end(void);
void noyau_stream_record(int stream, noyau_history *event);
void noyau_stream_wait(int stream, const noyau_history *event);
void noyau_stream_host(int stream);
}
struct CUstream_st {
    int priority = 0;
    CUgraph_st *records = nullptr;
    int number = 0;
};
typedef CUstream_st *cudaStream_t;
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)

NOYAU_UNSEEN static inline CUgraph_st *noyau_recorder(cudaStream_t stream) {
    return (uintptr_t)stream > 2 && stream->records && stream->records->is_open ? stream->records : nullptr;
}
/* The stream's number: 0 for the default stream. */
NOYAU_UNSEEN static inline int noyau_number(cudaStream_t stream) { return (uintptr_t)stream > 2 ? stream->number : 0; }
/* Does the work, unless the stream is being recorded. */
template <class F> NOYAU_UNSEEN static inline void noyau_do(cudaStream_t stream, F what, int is_copy = 1) {
    if (CUgraph_st *graph = noyau_recorder(stream)) {
        graph->add(new noyau_task_of<F>(what));
        return;
    }
    const int begins = noyau_stream_begin(noyau_number(stream), is_copy);
    what();
    if (begins) noyau_stream_end();
}

struct noyau_grid {
    dim3 grid, block;
    int64_t shared;
    cudaStream_t stream;
    int cooperates = 0;
    NOYAU_UNSEEN noyau_grid(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr)
        : grid(grid), block(block), shared((int64_t)shared), stream(stream) {}
    template <class Run, class... Given> NOYAU_CALLED void call(Run run, Given... given) {
        at(__builtin_return_address(0), run, std::tuple<Given...>(given...));
    }
    template <class Run, class... Given> NOYAU_UNSEEN void at(const void *pc, Run run, std::tuple<Given...> given) {
        struct Call {
            Run run;
            std::tuple<Given...> given;
        } what{run, given};
        const noyau_grid own = *this;
        noyau_do(stream, [own, what, pc]() NOYAU_UNSEEN {
            Call call = what;
#if __GNUC__ >= 11
            __builtin_clear_padding(&call); // so that equal launches have equal bytes
#endif
            noyau_run_grid(
                own.grid, own.block, own.shared, own.cooperates,
                [](void *at) NOYAU_UNSEEN { run_one(*(Call *)at, std::index_sequence_for<Given...>()); }, &call,
                std::is_empty<Run>::value || std::is_pointer<Run>::value ? (int64_t)sizeof call : 0, pc);
        }, 0);
    }

private:
    template <class Call, size_t... Number> NOYAU_UNSEEN static void run_one(Call &call, std::index_sequence<Number...>) {
        auto given = call.given;
        call.run(std::get<Number>(given)...);
    }
};

/* Kernels by their address: `(void *)kernel` is rewritten as noyau_kernel(kernel), so that its types are known. */
typedef noyau_task *(*noyau_maker)(const void *kernel, noyau_grid grid, void **given, const void *pc);
struct noyau_known {
    const void *kernel;
    noyau_maker make;
    noyau_known *next;
};
inline noyau_known *noyau_kernels = nullptr;

template <class... P, size_t... Number>
NOYAU_UNSEEN noyau_task *noyau_make(void (*kernel)(P...), noyau_grid grid, void **given, const void *pc,
                                    std::index_sequence<Number...>) {
    std::tuple<P...> values(*(typename std::remove_reference<P>::type *)given[Number]...);
    auto what = [=]() mutable NOYAU_UNSEEN { grid.at(pc, kernel, values); };
    return new noyau_task_of<decltype(what)>(what);
}
template <class... P> NOYAU_UNSEEN void *noyau_kernel(void (*kernel)(P...)) {
    const void *at = (const void *)kernel;
    for (noyau_known *each = noyau_kernels; each; each = each->next)
        if (each->kernel == at) return (void *)kernel;
    noyau_kernels = new noyau_known{at,
                                    [](const void *at, noyau_grid grid, void **given, const void *pc) NOYAU_UNSEEN {
                                        return noyau_make((void (*)(P...))at, grid, given, pc,
                                                          std::index_sequence_for<P...>());
                                    },
                                    noyau_kernels};
    return (void *)kernel;
}
NOYAU_UNSEEN static inline noyau_task *noyau_task_at(const void *kernel, noyau_grid grid, void **given, const void *pc) {
    for (noyau_known *each = noyau_kernels; each; each = each->next)
        if (each->kernel == kernel) return each->make(kernel, grid, given, pc);
    fprintf(stderr, "noyau: a kernel is launched by an address that is not of a kernel\n");
    abort();
}

#endif
