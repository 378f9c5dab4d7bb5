"""A GPU that was never measured, with round numbers."""

from __future__ import annotations

from noyau.timing.gpu_rate_cache import COLD, HOT, SIZES, GpuIdentity, GpuRates
from noyau.workers.nvml import GpuConditions

GPU = GpuIdentity("NVIDIA Round", 100, 50 << 20, 80 << 30, "9.0", "580.1", {"torch": "2.11", "triton": "3.6"})


def made(rate: float = 4e12, *, reads: bool = True) -> GpuRates:
    """Copies at a rate, four times as quick in the L2; reads 1.1 times and fills 0.8 times as quick."""

    def curves(times: float) -> dict[str, dict[int, float]]:
        hot = {size: times * rate * (4 if size <= 32 << 20 else 1) for size in SIZES}
        return {HOT: hot, COLD: dict.fromkeys(SIZES, times * rate)}

    calm = GpuConditions(1980.0, 1980, 3201, 40, 300.0)
    return GpuRates(
        GPU,
        curves(1.0),
        curves(1.1) if reads else {},
        curves(0.8),
        {"float32": 50e12, "bfloat16": 700e12},
        {"empty_pair": 2e-6, "host, torch": 5e-6},
        {"to device, pinned": {1 << 20: 20e9, 1 << 24: 50e9}, "to host, pinned": {1 << 20: 20e9, 1 << 24: 50e9}},
        {HOT: 3e-6, COLD: 9e-6},
        (calm, calm),
        "2026-01-01",
    )
