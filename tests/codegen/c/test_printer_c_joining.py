from __future__ import annotations

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.printer import text_of
from tests.codegen.kernels import kernel_of


def test_kernels_in_one_text_share_what_they_call():
    text = c_printer.together([kernel_of("log_softmax_kept"), kernel_of("log_softmax_streamed")])
    assert text.count("noyau_exp_negative_f32(float x) {") == 1
    assert text.count("static int32_t log_softmax_kept_run(") == text.count("log_softmax_streamed_kernel = {") == 1
    assert text.endswith("};\n")
    assert text.isascii()


def test_kernels_printed_one_by_one_are_the_text_of_all():
    made = [kernel_of(name) for name in ("swiglu", "log_softmax_kept")]
    assert text_of([c_printer.print_kernel(each) for each in made], "both") == c_printer.together(made, "both")
