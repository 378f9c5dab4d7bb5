import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[4] / "examples" / "distributed_training.py"


@pytest.mark.long
@pytest.mark.parametrize("by", ["ddp", "fsdp"])
def test_two_processes_train_as_one_does(by):
    command = [sys.executable, str(EXAMPLE), "--by", by]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()[-1].split()
    assert words[:3] == [f"{by},", "2", "processes:"] and float(words[-1]) < 1e-5
