"""Makes ML models faster with generated kernels that are checked against float64."""

from __future__ import annotations

import logging

__version__ = "0.1.0.dev0"
__all__ = ["__version__"]

logging.getLogger("noyau").addHandler(logging.NullHandler())
