from __future__ import annotations

from noyau.scripts.programs import check_program

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


def checked(tmp_path, text):
    path = tmp_path / "prog.cpp"
    path.write_text(text, encoding="utf-8")
    return check_program(path)


def seen(found):
    return [(each.kind, int(each.place.rpartition(":")[2])) for each in found.findings]


def test_what_is_done_once_is_waited_for_and_seen(tmp_path, capfd):
    found = checked(tmp_path, ONCE)
    assert seen(found) == [("race", 46)]  # of what nothing orders, and nothing else
    assert capfd.readouterr().out == "217 3\n8 4\n"
