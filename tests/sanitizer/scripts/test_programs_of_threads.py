from __future__ import annotations

from noyau.sanitizer.scripts.programs import check_program

ONCE = """\
#include <chrono>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <thread>
using namespace std::chrono_literals;
struct Table {
    int *t = new int[4];
    Table() {
        std::this_thread::sleep_for(1ms);
        for (int i = 0; i < 4; ++i) t[i] = i;
    }
};
const Table &table() {
    static Table t;
    return t;
}
struct Thrown {
    Thrown() {
        static int times;
        std::this_thread::sleep_for(1ms);
        if (!times++) throw std::runtime_error("");
    }
};
void make() {
    static Thrown one;
}
std::once_flag is_set, is_thrown;
int *sum, *value, times;
void work(int *out, int i) {
    *out = table().t[i];
    std::call_once(is_set, [] {
        std::this_thread::sleep_for(1ms);
        *value = 7;
    });
    *out += *value;
    try {
        make();
        std::call_once(is_thrown, [] {
            std::this_thread::sleep_for(1ms);
            if (!times++) throw 1;
        });
    } catch (...) {
        *out += 100;
    }
    ++*sum;
}
void again() {
    std::once_flag own;
    std::call_once(own, [] { ++times; });
}
int main() {
    int *out = new int[2];
    value = new int, sum = new int(0);
    std::thread a(work, out, 1), b(work, out + 1, 2);
    a.join(), b.join();
    again(), again();
    printf("%d %d\\n", out[0] + out[1], times);
    work(out, 1);
    printf("%d %d\\n", out[0], times);
}
"""
FUTURES = """\
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <semaphore>
#include <thread>
using namespace std::chrono_literals;
std::atomic<int> is_there{0};
struct alignas(64) Line {
    int at;
};
std::counting_semaphore<4> left(0);
int *cells;
int main() {
    cells = new int[4]();
    std::unique_ptr<Line[]> lines(new Line[2]());
    free(realloc(strdup("of a library"), 99));
    std::promise<int> made, never;
    std::future<int> of_it = made.get_future(), of_none = never.get_future();
    auto owned = std::make_shared<int>(5);
    std::thread gives([&, owned] {
        std::this_thread::sleep_for(1ms);
        auto too = owned;
        cells[0] = 5;
        made.set_value(1);
        cells[3] = 1;
    });
    std::thread waits([owned] {
        auto too = owned;
        is_there.wait(0);
        ++cells[1];
        left.release();
    });
    owned.reset();
    int sum = of_it.get() + cells[0];
    cells[1] = 3;
    is_there = 1;
    is_there.notify_all();
    left.acquire();
    sum += 10 * cells[1] + cells[3];
    auto later = std::async(std::launch::async, [] { return cells[2] = 100; });
    sum += later.get() + cells[2];
    const bool is_late = of_none.wait_for(5ms) == std::future_status::timeout;
    gives.join(), waits.join();
    printf("%d %d\\n", sum, is_late);
    of_none.get();
}
"""


def checked(tmp_path, text, flags=""):
    path = tmp_path / "prog.cpp"
    path.write_text(text, encoding="utf-8")
    return check_program(path, flags=flags)


def seen(found):
    return sorted((each.kind, int(each.place.rpartition(":")[2])) for each in found.findings)


def test_what_is_done_once_is_waited_for_and_seen(tmp_path, capfd):
    found = checked(tmp_path, ONCE)
    assert seen(found) == [("race", 46)]  # of what nothing orders, and nothing else
    assert capfd.readouterr().out == "217 3\n8 4\n"


def test_futures_and_waits_at_atomics_give_way_and_owners_are_counted_by_atomics(tmp_path, capfd):
    found = checked(tmp_path, FUTURES, "-std=c++20")
    assert seen(found) == [("crash", 16), ("race", 42)]
    assert "its threads wait for each other" in found.findings[1].message
    assert capfd.readouterr().out == "247 1\n"


REFUSED = """\
#include <cstdio>
#include <cuda_runtime.h>
__global__ void fill(float *x) { x[threadIdx.x] = 1; }
void tell(const char *of) { printf("%s: %s\\n", of, cudaGetErrorString(cudaGetLastError())); }
int main() {
    float *x;
    cudaMalloc(&x, 64 * sizeof(float));
    fill<<<1, 2048>>>(x);
    fill<<<1, 64>>>(x);
    printf("%s\\n", cudaGetErrorName(cudaPeekAtLastError()));
    tell("threads");
    tell("after");
    fill<<<1, 64, 1 << 20>>>(x);
    tell("memory");
    fill<<<0, 64>>>(x);
    tell("nothing");
}
"""


def test_a_refused_launch_leaves_its_error_until_it_is_asked_for(tmp_path, capfd):
    path = tmp_path / "prog.cu"
    path.write_text(REFUSED, encoding="utf-8")
    assert seen(check_program(path)) == [("launch", 8), ("launch", 13)]
    assert capfd.readouterr().out.splitlines() == [
        "cudaErrorInvalidConfiguration",
        "threads: invalid configuration argument",
        "after: no error",
        "memory: invalid argument",
        "nothing: invalid configuration argument",
    ]


EARLY = """\
#include <cstdio>
#include <mutex>
#include <thread>
thread_local int own = 1;
int open, closed, *held;
std::mutex locked;
struct Pool {
    std::thread one;
    Pool() : one([this] {
        open += own += 1;
        for (int i = 0; i < 100; ++i, std::this_thread::yield()) {
            std::lock_guard<std::mutex> hold(locked);
            closed += 1;
        }
    }) {
        std::this_thread::yield();
        held = new int(own);
    }
    ~Pool() { one.join(), printf("%d %d %d\\n", open, closed, own); }
} pool;
int main() {
    open += *held;
    std::lock_guard<std::mutex> hold(locked);
    closed += 1;
    return 4;
}
"""


def test_threads_may_begin_before_main_and_end_after_it(tmp_path, capfd):
    found = checked(tmp_path, EARLY)
    assert (seen(found), found.fault) == ([("race", 22)], "it ended with status 4")
    assert capfd.readouterr().out == "3 101 1\n"


MOVED = """\
#include <thread>
#include <vector>
int main() {
    std::vector<int> one(5, 1), other(5);
    other = one;
    std::thread a([&] { other = one; });
    one[1] = 2;
    a.join();
}
"""


def test_what_is_moved_as_a_whole_is_read_and_written(tmp_path):
    assert [each.kind for each in checked(tmp_path, MOVED).findings] == ["race"]
