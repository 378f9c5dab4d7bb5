"""Reductions of streams, public as `noyau.reductions`: monoids, whose results do not depend on chunks, threads, files.

`noyau check noyau.reductions` tests their laws, `noyau stream noyau.reductions::HyperLogLog SOURCE` runs one."""

from noyau.engines.reductions.distinct import DistinctSample as DistinctSample
from noyau.engines.reductions.distinct import HyperLogLog as HyperLogLog
from noyau.engines.reductions.groups import GroupMoments as GroupMoments
from noyau.engines.reductions.groups import Moments as Moments
from noyau.engines.reductions.numeric import Histogram as Histogram
from noyau.engines.reductions.numeric import LeastSquares as LeastSquares
from noyau.engines.reductions.numeric import Quantiles as Quantiles
from noyau.engines.reductions.numeric import TallQR as TallQR
from noyau.engines.reductions.samples import Nearest as Nearest
from noyau.engines.reductions.samples import Reservoir as Reservoir
from noyau.engines.reductions.samples import Top as Top
