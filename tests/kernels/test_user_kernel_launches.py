"""The launch of a kernel over a grid: how an author says it, and the limits of a device, each with its value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.errors import DeviceError, SignatureError
from noyau.kernels.user_kernel import GPU, LaunchConfig, config_of, require_limits


def test_a_launch_is_a_grid_a_block_and_perhaps_shared_memory():
    assert config_of((3, 128), "launch=") == LaunchConfig((3, 1, 1), (128, 1, 1))
    assert config_of(((3, 2), (16, 16), 4096), "launch=", 7) == LaunchConfig((3, 2, 1), (16, 16, 1), 4096)
    assert str(config_of((3, 128), "launch=", 7)) == "<<<3, 128, 7>>>"
    for wrong in (3, (3,), (3, 1.5), ((1, 2, 3, 4), 1), [3, 128], (3, 128, "all"), (3, 128, 2.5)):
        with pytest.raises(SignatureError, match=r"^launch= gives "):
            config_of(wrong, "launch=")


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (LaunchConfig((1, 1, 1), (2048, 1, 1)), "a block of 2048 along x, and cuda:0 takes 1024"),
        (LaunchConfig((1, 1, 1), (32, 1, 128)), "a block of 128 along z, and cuda:0 takes 64"),
        (LaunchConfig((1, 1 << 17, 1), (1, 1, 1)), "a grid of 131072 along y, and cuda:0 takes 65535"),
        (LaunchConfig((1, 1, 1), (64, 32, 1)), "2048 threads a block, and cuda:0 takes 1024"),
        (
            LaunchConfig((1, 1, 1), (1, 1, 1), 1 << 20),
            "1048576 bytes of shared memory a block, and cuda:0 takes 232448",
        ),
        (LaunchConfig((16, 1, 1), (1, 1, 1), 0, 16), "16 blocks a cluster, and cuda:0 takes 8"),
    ],
)
def test_what_is_beyond_a_limit_is_refused(config, error):
    with pytest.raises(DeviceError, match=f"^k: a launch asks for {error}; ask for less$"):
        require_limits(config, GPU, "k")


def test_limits_that_hang_on_the_kernel_and_the_device():
    config = LaunchConfig((4, 1, 1), (512, 1, 1), 0, 2)
    require_limits(config, GPU, "k")
    with pytest.raises(DeviceError, match="512 threads a block, and cuda:0 takes 256"):
        require_limits(config, GPU, "k", threads_most=256)
    with pytest.raises(DeviceError, match="2 blocks a cluster, and cuda:0 takes 1"):
        require_limits(config, replace(GPU, capability=(8, 6)), "k")
    for shared_bytes, cluster in ((0, 0), (0, -2), (-4, 1)):
        with pytest.raises(DeviceError, match=f"in clusters of {cluster} is no launch: blocks have a thread at least"):
            require_limits(LaunchConfig((4, 1, 1), (1, 1, 1), shared_bytes, cluster), GPU, "k")
    for wrong in (LaunchConfig((3, 1, 1), (1, 1, 1), 0, 2), LaunchConfig((1, 1, 1), (0, 1, 1))):
        with pytest.raises(DeviceError, match="is no launch: blocks have a thread at least, and fill whole clusters"):
            require_limits(wrong, GPU, "k")
