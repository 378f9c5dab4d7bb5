"""Kernels compiled and certified on the model's activations; one that fails is dropped, with the reason."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from noyau.codegen.plan import PlannedKernel
from noyau.errors import NoyauError
from noyau.hosts.onnxruntime.activations import Activations, end_places
from noyau.hosts.onnxruntime.write_back import grid_of
from noyau.ir.graph import names_of
from noyau.jobs.optimize.onnx.cuda_kernels import twin_certificate
from noyau.jobs.optimize.pipeline import NOT_BUILT, Candidate, certify
from noyau.kernels.certificates import CertificateTask, judge
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cuda import compiler as cuda_compiler
from noyau.verify.awkward_sizes import cells
from noyau.verify.certificate import Certificate
from noyau.verify.failures import Case
from noyau.workers.resources import processors

_NOTHING = 'extern "C" __global__ void nothing() {}\n'
MOST_CELLS = 1 << 22  # the most captured cells of a certificate: each goes through the interpreter ten times


def compile_kernels(kernels: Sequence[PlannedKernel], options: c_compiler.CompilerOptions) -> list[Candidate]:
    """Compile each kernel; with the reason if it does not build. BuildError if a compiler is missing."""
    if kernels:
        c_compiler.find_compiler(options.compiler)
    for architecture in kernels[0].twin.architectures if kernels and kernels[0].twin else ():
        cuda_compiler.cubin_of(_NOTHING, architecture)
    pool = ThreadPoolExecutor(processors())
    try:
        return list(pool.map(lambda kernel: _compile(kernel, options), kernels))
    except BaseException:
        c_compiler.end_all()  # the pool waits for its threads, and they for their compilers
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _compile(kernel: PlannedKernel, options: c_compiler.CompilerOptions) -> Candidate:
    try:
        for text in (kernel.text, *([] if kernel.twin is None else [grid_of(kernel.twin)])):
            c_compiler.compile_object(text, options)
    except NoyauError as error:
        return Candidate(kernel, reason=f"{NOT_BUILT}: {error}")
    return Candidate(kernel)


def certify_candidate(
    candidate: Candidate,
    activations: Activations,
    options: c_compiler.CompilerOptions,
    seed: int,
    make: Callable[[CertificateTask], Certificate] = judge,
) -> Candidate:
    """The candidate with its certificate, against the graph as the model spells it; `make` computes the certificate."""

    def certificate() -> tuple[Certificate, str]:
        kernel, first = candidate.planned, candidate.planned.groups[0]
        library, sizes = c_compiler.compile_library([kernel.text], options), activations.sizes_of(first.original)
        captured, note = activation_cases(kernel, activations)
        own = (kernel.operator, library, first.original, first.graph)
        task = CertificateTask(*own, captured, sizes, seed, activations.made_up)
        result = make(task)
        return twin_certificate(task, kernel.twin) if kernel.twin is not None and result.ok else (result, note)

    return certify(candidate, certificate)


def activation_cases(kernel: PlannedKernel, activations: Activations) -> tuple[list[Case], str]:
    """Cases of a kernel's captured inputs: in its first and in its last place, and with a user's other samples in its
    first; and a note if none can be had or they are too large."""
    cases, spent, note = list[Case](), 0, ""
    flows = [(activations, group) for group in end_places(kernel)]
    flows += [(other, kernel.groups[0]) for other in activations.others]
    for flow, group in flows:
        arrays = flow.of(group.original)
        if (fault := flow.fault_of(group)) or arrays is None:
            note = "" if cases else fault
            continue
        graph, sizes = group.original, flow.sizes_of(group.original)
        largest = cells(graph, sizes) if names_of(graph) <= sizes.keys() else 0  # 0: not known
        count = max(largest, *(array.size for array in arrays), 0)
        if spent + count <= MOST_CELLS:
            cases.append(Case(f"captured at {', '.join(group.outputs)}"[:80], arrays, captured=True))
            spent += count
        elif not cases:
            note = f"its activations, of {count:,} cells, are too large to be among the cases"
    return cases, note
