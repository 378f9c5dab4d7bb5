"""Reductions of streams, called `noyau.reductions`: monoids, so that chunks, threads, files and machines give one result.

`noyau check noyau.reductions` tests their laws, `noyau stream noyau.reductions::HyperLogLog SOURCE` runs one."""

from noyau.engines.reductions.counts import Histogram, Quantiles
from noyau.engines.reductions.distinct import DistinctSample, HyperLogLog
from noyau.engines.reductions.groups import GroupMoments, Moments
from noyau.engines.reductions.linear import LeastSquares, TallQR
from noyau.engines.reductions.samples import Nearest, Reservoir, Top

__all__ = [
    *("DistinctSample", "GroupMoments", "Histogram", "HyperLogLog", "LeastSquares", "Moments", "Nearest", "Quantiles"),
    *("Reservoir", "TallQR", "Top"),
]
