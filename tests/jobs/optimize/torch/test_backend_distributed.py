import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[4] / "examples" / "distributed_training.py"


@pytest.mark.long
@pytest.mark.parametrize("by", ["ddp", "fsdp"])
def test_two_processes_train_as_one_does(by):
    assert difference(by, "cpu") < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is no second CUDA device")
@pytest.mark.parametrize("by", ["ddp", "fsdp"])
def test_two_gpus_train_as_one_does(by):
    assert difference(by, "cuda") < 1e-5


def difference(by: str, device: str) -> float:
    """The largest difference of two processes from one, as the example prints it."""
    command = [sys.executable, str(EXAMPLE), "--by", by, "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()[-1].split()
    assert words[:3] == [f"{by},", "2", "processes:"]
    return float(words[-1])
