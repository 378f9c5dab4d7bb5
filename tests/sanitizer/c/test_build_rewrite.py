"""What of CUDA and OpenMP is written anew, on the same lines."""

from __future__ import annotations

import pytest

from noyau.errors import UnsupportedError
from noyau.sanitizer.c.build import rewrite


def test_kernels_keep_their_types_where_they_are_launched_by_an_address():
    text = "__global__ void f(int *x) {}\ntemplate <class T> __global__ void g(T *x) {}\nint n;\n"
    calls = "h((void *)f, (const void *)&g<float>, reinterpret_cast<void *>(f), (void *)n, (void *)f(1), "
    calls += "p.gridDim, q->blockDim);"
    assert rewrite(text + calls, "cuda", "op[f]").splitlines()[3] == (
        "h(noyau_kernel(f), noyau_kernel(g<float>), noyau_kernel(f), (void *)n, (void *)f(1), "
        "p.of_gridDim, q->of_blockDim);"
    )


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("f<<<1, 64>>>(x, n);", "noyau_grid(1, 64).call({f}, x, n);"),
        ("f<<<g, b, 4 * n, s>>>();", "noyau_grid(g, b, 4 * n, s).call({f});"),
        ("f<float, 2> <<<g, b>>> (x);", "noyau_grid(g, b).call({f<float, 2>}, x);"),
        ("if (n) a::f<<<dim3(1, 2),\n b>>>(x);", "if (n) noyau_grid(dim3(1, 2),\n b).call({a::f}, x);"),
        ("// f<<<1, 2>>>(x)", "// f<<<1, 2>>>(x)"),
        ('puts("f<<<1, 2>>>(x)");', 'puts("f<<<1, 2>>>(x)");'),
        ("extern __shared__ float s[];", 'static float *const &s = *(float *const *)noyau_dynamic_place("s");'),
        ("{ extern __shared__ float s[]; }", '{ float *const s = (float *)noyau_dynamic_shared("s"); }'),
        (
            "{ extern __shared__ float s[][W + 1]; }",
            '{ float (*const s)[W + 1] = (float (*)[W + 1])noyau_dynamic_shared("s"); }',
        ),
        (
            "extern __shared__ float s[][W + 1];",
            'static float (*const &s)[W + 1] = *(float (*const *)[W + 1])noyau_dynamic_place("s");',
        ),
        ("__shared__ alignas(alignof(float4)) float s[4];", "alignas(alignof(float4)) __shared__ float s[4];"),
        (
            "{ extern __shared__ __align__(16) unsigned char s[ ]; }",
            "{ unsigned char *const s = (unsigned char *)noyau_dynam",
        ),
        (
            "{ extern __shared__ float a[]; } { extern __shared__ int b[]; }",
            '{ float *const a = (float *)noyau_dynamic_shared("dynamic shared memory"); } '
            '{ int *const b = (int *)noyau_dynamic_shared("dynamic shared memory"); }',
        ),
    ],
)
def test_launches_and_dynamic_memory_are_written_anew(text, becomes):
    unseen = '[&](auto... noyau_given) __attribute__((no_sanitize("thread"))) {{ {}(noyau_given...); }}'
    start, _, rest = becomes.partition(".call({")
    name, _, end = rest.partition("}")
    wanted = f"{start}.call({unseen.format(name)}{end}" if rest else becomes
    made = rewrite(text, "cuda", "op[f]")
    assert made.startswith(wanted)
    assert made.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("#pragma omp parallel for\nfor", "#pragma omp parallel for schedule(runtime)\nfor"),
        ("  # pragma omp for collapse(2) // all\n", "  # pragma omp for collapse(2) schedule(runtime) // all\n"),
        ("#pragma omp for schedule(static, 1)\n", "#pragma omp for schedule(static, 1)\n"),
        ("#pragma omp for nowait\n#pragma omp for\n", "#pragma omp for nowait\n#pragma omp for\n"),
        ("#pragma omp parallel \\\n  for private(t)\n", "#pragma omp parallel \\\n  for private(t)\n"),
        ("#pragma omp parallel\n", "#pragma omp parallel\n"),
    ],
)
def test_loops_that_nobody_deals_are_dealt_by_the_plan(text, becomes):
    assert rewrite(text, "c", "op[f]") == becomes


@pytest.mark.parametrize("text", ["x = 1;\n<<<1, 2>>>(x);", "x;\nf<<<1, 2;", "\nf<<<1, 2>>>;"])
def test_a_launch_that_is_not_read_is_named_with_its_line(text):
    with pytest.raises(UnsupportedError, match=r"op\[f\]: the launch on line 2 is not read"):
        rewrite(text, "cuda", "op[f]")


@pytest.mark.parametrize("head", ["#ifndef NOYAU_WATCHED", "#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800"])
def test_what_a_text_has_for_gpus_alone_is_not_watched(head):
    text = f'{head}\nasm("nop;");\n#else\nx = 1;\n#endif\n'
    assert rewrite(text, "cuda", "op[f]") == text
    with pytest.raises(UnsupportedError, match="line 6 uses asm: PTX cannot be watched"):
        rewrite(text + 'asm("nop;");', "cuda", "op[f]")
