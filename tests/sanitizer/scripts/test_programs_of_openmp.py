from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noyau.jobs.cli import main
from noyau.sanitizer.scripts.programs import check_program

THREADS = Path(__file__).parents[1] / "c" / "threads.c"
KINDS = {"race": "race", "chance": "ordered-by-chance", "unset": "uninitialised"}


def checked(tmp_path, text, **options):
    path = tmp_path / "prog.c"
    path.write_text(text, encoding="utf-8")
    return check_program(path, **options)


def test_wrong_lines_are_found_and_right_ones_are_not(capfd):
    """Each finding is of a line that is marked, and each of these is in one."""
    lines = enumerate(THREADS.read_text(encoding="utf-8").splitlines()[2:], 3)
    marks = {
        line: KINDS[found[1]] for line, text in lines if (found := re.search(r"/\* (race|chance|unset) \*/", text))
    }
    check = check_program(THREADS, time_s=60)
    pairs = [
        (each.kind, {int(place.rpartition(":")[2]) for place in (each.place, each.other_place) if place})
        for each in check.findings
    ]
    wrong = [(kind, sides) for kind, sides in pairs if not any(marks.get(side) == kind for side in sides)]
    assert not wrong, str(check)
    missed = marks.keys() - set().union(*(sides for _, sides in pairs))
    assert not missed, str(check)
    assert not check.kernels[0].unseen
    (remedy,) = {each.mend for each in check.findings if each.kind == "uninitialised"}
    assert remedy == "private gives it no value: set it before it is read, or say firstprivate"


def test_a_region_of_one_thread_is_not_clean(tmp_path, capfd):
    text = """int main(int argc, char **argv) {
    int x = 0;
#pragma omp parallel if (argc > 1)
    x += 1;
#pragma omp parallel num_threads(1)
    x += 1;
    return x - 2;
}
"""
    check = checked(tmp_path, text)
    assert check.ok
    assert not check.is_verified
    assert check.kernels[0].unseen == "the region of line 3 ran with one thread; run it where it has more"
    assert not checked(tmp_path, text, arguments=["x"]).ok


def test_globals_have_an_end_and_a_swap_proves_what_was_read_before_it(tmp_path, capfd):
    """`most` is read as any number is, and then compared and swapped; `counts` has ten cells."""
    text = """static int counts[10];
_Alignas(64) int most; /* so that nothing lies right behind counts */
double whole[10], next[10];
void raise(int value) {
    int old;
    do old = most;
    while (value > old && !__sync_bool_compare_and_swap(&most, old, value));
}
int main(void) {
#pragma omp parallel for
    for (int i = 0; i < 50; ++i) {
        raise(i * 7 % 50);
        if (i < 10) whole[i] = next[i];
#pragma omp atomic
        counts[i % LAST] += 1;
    }
    return most - 49;
}
"""
    assert checked(tmp_path, text, flags="-DLAST=10").is_verified
    (found,) = checked(tmp_path, text, flags="-DLAST=11").errors
    assert "merges into counts at 10, which has 10 cells" in found.message


def test_optimisation_is_as_the_flags_say(tmp_path, capfd):
    text = """int main(void) {
    int init, local;
#pragma omp parallel shared(init) private(local)
    {
#pragma omp master
        init = 10;
        local = init;
    }
    return 0;
}
"""
    assert {each.kind for each in checked(tmp_path, text).errors} == {"race"}
    assert checked(tmp_path, text, flags="-O1").ok  # nobody needs what is read


WAITS = """#include <pthread.h>
#include <stdio.h>
static int x;
static void *work(void *given) {
    x += 1;
    return given;
}
int main(int argc, char **argv) {
    pthread_t one, two;
    pthread_create(&one, 0, work, 0), pthread_create(&two, 0, work, 0);
    pthread_join(one, 0), pthread_join(two, 0);
    puts("waits"), fflush(stdout);
    for (;;) { }
}
"""


def test_what_was_seen_in_its_time_is_told(tmp_path, capsys):
    path = tmp_path / "waits.c"
    path.write_text(WAITS, encoding="utf-8")
    assert main(["check", str(path), "--time", "0.2"]) == 1
    told = capsys.readouterr().out
    assert "race: thread 2 reads x" in told
    assert "not verified: line 12: it does not end within its time" in told
    assert main(["check", str(path), "--time", "0"]) == 2
    assert "--time 0 is no limit: give a number of seconds above 0" in capsys.readouterr().err


def is_running(path):
    """Whether a process has a file in its command line."""
    found = Path("/proc").glob("[0-9]*/cmdline")
    texts = []
    for each in found:
        try:
            texts.append(each.read_bytes())
        except OSError:
            continue
    return any(str(path).encode() in text for text in texts)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_check_tells_what_it_saw_and_ends_its_program(tmp_path, number):
    path = tmp_path / "waits.c"
    path.write_text(WAITS, encoding="utf-8")
    command = [sys.executable, "-m", "noyau", "check", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.5)  # who runs it may still be on its way to wait for it
        os.kill(process.pid, number)
        told = process.stdout.read()
    if number != signal.SIGKILL:
        assert "race: thread 2 reads x" in told
        assert "it was interrupted" in told
    for _ in range(100):
        if not is_running(path):
            break
        time.sleep(0.05)
    assert not is_running(path)


def test_a_program_that_takes_too_much_memory_is_given_up(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("noyau.sanitizer.c.run.MEMORY_MIB", 64)
    text = """#include <stdlib.h>
int main(void) {
    for (;;) {
        int *more = malloc(1 << 20);
        for (int i = 0; i < 1 << 18; ++i) more[i] = i;
    }
}
"""
    check = checked(tmp_path, text)
    assert check.ok
    assert "it takes more than 64 MiB, with the shadow of its memory; try a smaller size" in check.kernels[0].unseen


def test_what_cannot_be_watched_is_no_finding(tmp_path, capfd):
    text = """#include <omp.h>
int main(void) {
    omp_event_handle_t event;
#pragma omp parallel
#pragma omp single
    {
#pragma omp task detach(event)
        {
        }
        omp_fulfill_event(event);
    }
}
void omp_fulfill_event(omp_event_handle_t event) { }
"""
    check = checked(tmp_path, text)
    assert not check.findings
    assert "a task that is completed by an event (detach) cannot be watched" in check.kernels[0].unseen
    assert not check.is_verified


def test_threads_that_share_nothing_are_right(tmp_path, capfd):
    check = checked(
        tmp_path, "int main(void) {\n#pragma omp parallel\n    {\n        int own = 1;\n        (void)own;\n    }\n}\n"
    )
    assert check.is_verified
    assert str(check) == "prog: no race found in 2 runs, 0 accesses; 1 region of several threads"


def test_memory_of_another_file_is_named_by_it(tmp_path, capfd):
    (tmp_path / "alloc.c").write_text("#include <stdlib.h>\n\nvoid *block(long n) { return calloc(n, 8); }\n", "utf-8")
    text = """void *block(long n);
int main() {
    double *a = (double *)block(9);
#pragma omp parallel for
    for (int i = 0; i < 8; i++)
        a[i] = a[i + 1] + 1;
}
"""
    (race,) = checked(tmp_path, text, flags=str(tmp_path / "alloc.c")).findings
    assert "memory of alloc.c, line 3[" in race.message
