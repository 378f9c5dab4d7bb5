"""Imports noyau as it is, without asserts that pytest rewrites. To be imported before noyau.

noyau has a plugin of pytest, for whose sake an editable install would have all its 600 files rewritten: ten seconds in
each process where none are kept, and other code than users run.
"""

from __future__ import annotations

import sys

for finder in sys.meta_path:
    getattr(finder, "_must_rewrite", set()).discard("noyau")
