"""Many kernels in one C text, so that thousands are built in a minute; run in a process of their own, which may die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection

from noyau.codegen.c.printer import CPrinter, print_kernel, text_of
from noyau.ir.loops import Kernel
from noyau.toolchain.c.compiler import CompilerOptions, compile_library
from noyau.toolchain.c.library import Native

QUICK = CompilerOptions(extra=("-O0",))  # the texts are the same as for -O3, and compile in a tenth of the time
Job = Callable[[], str | None]


def build_many(kernels: Sequence[Kernel], options: CompilerOptions = QUICK) -> list[Native]:
    """The kernels, built as one library; their names differ. BuildError where the compiler refuses the text."""
    return build_printed({kernel.name: print_kernel(kernel) for kernel in kernels}, options)


def build_printed(parts: Mapping[str, CPrinter], options: CompilerOptions = QUICK) -> list[Native]:
    """As build_many, of kernels that were printed, by their names."""
    library = compile_library([text_of(list(parts.values()))], options)
    return [Native(library, f"{name}_kernel") for name in parts]


def run_apart(jobs: Sequence[Job]) -> Iterator[str | None]:
    """What each job says is wrong, from a forked process; the job that ends it is told, and the next ones go on."""
    done = 0
    while done < len(jobs):
        context = get_context("fork")
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(jobs[done:], send))
        process.start()
        send.close()
        try:
            while done < len(jobs):
                yield receive.recv()
                done += 1
        except EOFError:
            process.join()
            yield f"job {done} ended its process with the status {process.exitcode}"
            done += 1
        process.join()


def _work(jobs: Sequence[Job], send: Connection) -> None:
    for job in jobs:
        send.send(job())
    send.close()
