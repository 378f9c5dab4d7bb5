// Defects of kernels in C++, each beside its mended twin: noyau check examples/defects/threads.py
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

// Four threads add to one double.
extern "C" void total_broken(const float *x, double *out, int n) {
    std::vector<std::thread> threads;
    *out = 0;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([=] {
            for (int i = t; i < n; i += 4)
                *out += x[i]; // defect: race
        });
    for (auto &thread : threads) thread.join();
}
extern "C" void total_mended(const float *x, double *out, int n) {
    std::vector<std::thread> threads;
    std::mutex mutex;
    *out = 0;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([=, &mutex] {
            double own = 0;
            for (int i = t; i < n; i += 4) own += x[i];
            std::lock_guard<std::mutex> lock(mutex);
            *out += own;
        });
    for (auto &thread : threads) thread.join();
}

// The result is read while a thread may still write it.
extern "C" void half_broken(const float *x, float *out, int n) {
    std::vector<float> half(n);
    std::thread worker([&] {
        for (int i = 0; i < n; i++) half[i] = x[i] / 2; // other
    });
    for (int i = 0; i < n; i++)
        out[i] = half[i]; // defect: race
    worker.join();
}
extern "C" void half_mended(const float *x, float *out, int n) {
    std::vector<float> half(n);
    std::thread worker([&] {
        for (int i = 0; i < n; i++) half[i] = x[i] / 2;
    });
    worker.join();
    for (int i = 0; i < n; i++) out[i] = half[i];
}

// A flag that is no atomic.
extern "C" void handed_over_broken(const float *x, float *out) {
    float value = 0;
    volatile bool ready = false;
    std::thread worker([&] {
        value = x[0];
        ready = true; // other
    });
    std::this_thread::yield();
    if (!ready) // defect: race
        worker.join();
    out[0] = x[0];
    if (worker.joinable()) worker.join();
}
extern "C" void handed_over_mended(const float *x, float *out) {
    float value = 0;
    std::atomic<bool> ready{false};
    std::thread worker([&] {
        value = x[0];
        ready.store(true, std::memory_order_release);
    });
    while (!ready.load(std::memory_order_acquire)) std::this_thread::yield();
    out[0] = value;
    worker.join();
}

// A sleep waits for nobody: that the worker came first to a lock, which guards other cells, is all that orders the two.
extern "C" void mean_broken(const float *x, float *out, int n) {
    std::vector<int> lines(2);
    std::mutex log;
    std::thread worker([&] {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += x[i];
        out[0] = sum; // other
        std::lock_guard<std::mutex> lock(log);
        lines[0]++;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    log.lock(), lines[1]++, log.unlock();
    out[0] /= n; // defect: ordered-by-chance
    worker.join();
}
extern "C" void mean_mended(const float *x, float *out, int n) {
    std::vector<int> lines(2);
    std::mutex log;
    std::thread worker([&] {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += x[i];
        out[0] = sum;
        std::lock_guard<std::mutex> lock(log);
        lines[0]++;
    });
    worker.join();
    log.lock(), lines[1]++, log.unlock();
    out[0] /= n;
}
