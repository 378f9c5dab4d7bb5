from __future__ import annotations

from tools.semantics import formula_texts


def test_formulas_are_spelt():
    assert formula_texts("divide") == ("g / b", "-((g * y) / b)")
    assert formula_texts("floor_divide") == ("0", "0")
    assert formula_texts("where") == ("none", "(g where c, else 0)", "(0 where c, else g)")
    assert formula_texts("shift_left") == ("none", "none")
