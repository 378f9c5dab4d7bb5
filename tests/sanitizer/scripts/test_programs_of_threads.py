from __future__ import annotations

import pytest

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


LOCKS = """\
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, again;
pthread_cond_t never = PTHREAD_COND_INITIALIZER;
pthread_spinlock_t spin;
sem_t filled, empty;
int *cells, late;
static struct timespec in(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec += 1;
    return t;
}
static void *work(void *given) {
    (void)given;
    for (int i = 0; i < 50; ++i) {
        struct timespec far = in(CLOCK_REALTIME, 60000), mono = in(CLOCK_MONOTONIC, 60000);
        while (pthread_rwlock_trywrlock(&shared)) {}
        cells[0] += 1;
        pthread_rwlock_unlock(&shared);
        while (pthread_rwlock_tryrdlock(&shared)) {}
        if (cells[0] < 0) cells[9] = 1;
        pthread_rwlock_unlock(&shared);
        if (!pthread_rwlock_timedwrlock(&shared, &far)) cells[0] += 1, pthread_rwlock_unlock(&shared);
        if (!pthread_mutex_timedlock(&one, &far)) cells[1] += 1, pthread_mutex_unlock(&one);
        if (!pthread_mutex_clocklock(&one, CLOCK_MONOTONIC, &mono)) cells[1] += 1, pthread_mutex_unlock(&one);
        while (pthread_spin_trylock(&spin)) {}
        cells[2] += 1;
        pthread_spin_unlock(&spin);
        pthread_mutex_lock(&again);
        while (pthread_mutex_trylock(&again)) {}
        cells[3] += 1;
        pthread_mutex_unlock(&again), pthread_mutex_unlock(&again);
    }
    return 0;
}
static void *produce(void *given) {
    (void)given;
    for (int i = 0; i < 50; ++i) {
        sem_wait(&empty);
        cells[4] = i;
        sem_post(&filled);
    }
    cells[8] = 1;
    return 0;
}
static void *hold(void *given) {
    (void)given;
    pthread_mutex_lock(&one);
    sem_post(&filled);
    while (__atomic_load_n(&late, __ATOMIC_ACQUIRE) < 1) {}
    pthread_mutex_unlock(&one);
    return 0;
}
int main(void) {
    pthread_t a, b, c;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind), pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&again, &kind), pthread_spin_init(&spin, 0);
    sem_init(&filled, 0, 0), sem_init(&empty, 0, 1);
    cells = new int[10]();
    pthread_create(&a, 0, work, 0), pthread_create(&b, 0, work, 0);
    pthread_join(a, 0), pthread_join(b, 0);
    pthread_create(&c, 0, produce, 0);
    int sum = 0;
    for (int i = 0; i < 50; ++i) {
        struct timespec far = in(CLOCK_REALTIME, 60000);
        if (i % 2) sem_wait(&filled);
        else if (sem_timedwait(&filled, &far)) return 1;
        sum += cells[4];
        sem_post(&empty);
    }
    cells[8] = 2;
    pthread_join(c, 0);
    struct timespec soon = in(CLOCK_REALTIME, 20);
    printf("%d %d %d %d %d\\n", cells[0], cells[1], cells[2], cells[3], sum);
    int error = sem_timedwait(&filled, &soon) ? errno : 0, value = 7;
    sem_getvalue(&filled, &value);
    printf("%d %d\\n", error == ETIMEDOUT, value);
    pthread_create(&a, 0, hold, 0);
    while (sem_trywait(&filled)) {}
    soon = in(CLOCK_REALTIME, 20);
    printf("%d %d\\n", pthread_mutex_timedlock(&one, &soon) == ETIMEDOUT, pthread_mutex_trylock(&one) == EBUSY);
    __atomic_store_n(&late, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&one);
    soon = in(CLOCK_REALTIME, 20);
    while (!pthread_cond_timedwait(&never, &one, &soon)) {}
    soon = in(CLOCK_MONOTONIC, 20);
    while (!pthread_cond_clockwait(&never, &one, CLOCK_MONOTONIC, &soon)) {}
    pthread_mutex_unlock(&one);
    pthread_join(a, 0);
    sem_wait(&filled);
}
"""


def test_locks_that_are_tried_or_have_a_time_limit_and_semaphores_order_their_holders(tmp_path, capfd):
    found = checked(tmp_path, LOCKS)
    lines = LOCKS.splitlines()
    last = len(lines) - 1
    assert seen(found) == [("crash", last), ("race", lines.index("    cells[8] = 2;") + 1)]
    assert capfd.readouterr().out.splitlines() == ["200 200 100 100 1225", "1 0", "1 1"]


MANY = """\
#include <mutex>
#include <thread>
#include <vector>
std::mutex stripes[6000];
int *cells;
void work(bool is_first) {
    for (int i = 0; i < 6000; ++i) {
        std::lock_guard<std::mutex> hold(stripes[i]);
        cells[i] += 1;
    }
    if (is_first) {
        for (int i = 0; i < 20; ++i) stripes[i].lock();
        for (int i = 0; i < 20; ++i) cells[i] += 1;
        for (int i = 20; i-- > 0;) stripes[i].unlock();
    }
    std::lock_guard<std::mutex> hold(stripes[19]);
    cells[19] += 1;
}
int main() {
    cells = new int[6000]();
    std::thread a(work, true), b(work, false);
    a.join(), b.join();
}
"""


def test_many_locks_and_many_at_a_time_exclude_their_holders(tmp_path):
    found = checked(tmp_path, MANY)
    assert (found.findings, found.is_verified) == ((), True)


PAIRS = """\
#include <mutex>
#include <thread>
std::mutex stripes[400];
int *cells;
void work() {
    for (int i = 0; i < 400; ++i)
        for (int j = i + 1; j < 400; ++j) {
            std::lock_guard<std::mutex> one(stripes[i]), two(stripes[j]);
            cells[i] += 1, cells[j] += 1;
        }
}
int main() {
    cells = new int[400]();
    std::thread a(work);
    a.join();
}
"""


def test_more_sets_of_locks_than_have_numbers_leave_a_run_unverified(tmp_path):
    found = checked(tmp_path, PAIRS)
    assert (found.findings, found.is_verified) == ((), False)
    assert "more than 65535 sets of locks" in str(found)


READERS = """\
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
pthread_barrier_t both;
int *cells;
static void *work(void *given) {
    pthread_rwlock_rdlock(&shared);
    pthread_barrier_wait(&both); /* two readers at a time */
    *(int *)given = cells[0];
    LINE
    pthread_rwlock_unlock(&shared);
    pthread_rwlock_wrlock(&shared);
    cells[0] += 1;
    pthread_rwlock_unlock(&shared);
    return 0;
}
static void *hand_over(void *given) {
    sem_t *ready = sem_open("/ready", 0);
    cells[2] = 5;
    sem_post(ready);
    AFTER
    sem_close(ready);
    return given;
}
int main(void) {
    pthread_t a, b;
    cells = new int[4]();
    int seen[2];
    sem_t *ready = sem_open("/ready", O_CREAT | O_EXCL, 0600, 0u);
    if (sem_open("/ready", O_CREAT | O_EXCL, 0600, 0u) != SEM_FAILED || sem_open("/other", 0) != SEM_FAILED) return 1;
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&a, 0, work, seen), pthread_create(&b, 0, work, seen + 1);
    pthread_join(a, 0), pthread_join(b, 0);
    pthread_create(&a, 0, hand_over, 0);
    sem_wait(ready);
    cells[2] += 1;
    pthread_join(a, 0);
    printf("%d %d\\n", cells[0], cells[2]);
    return sem_unlink("/ready") || !sem_unlink("/ready");
}
"""


@pytest.mark.parametrize(
    ("line", "after", "kinds"),
    [("", "", []), ("cells[1] += 1;", "", ["race"]), ("", "cells[2] += 0;", ["race"])],
)
def test_readers_share_a_lock_and_semaphores_of_a_name_are_one(tmp_path, line, after, kinds):
    found = checked(tmp_path, READERS.replace("LINE", line).replace("AFTER", after))
    assert (sorted({each.kind for each in found.findings}), found.fault) == (kinds, "")
