"""Sessions of onnxruntime as callables that only run: inputs and outputs lie in memory that is bound beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import InputError, UnsupportedError
from noyau.runtimes.onnxruntime import array_of, ort_value, told

if TYPE_CHECKING:
    import onnxruntime
