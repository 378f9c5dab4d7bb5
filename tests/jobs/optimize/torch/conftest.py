from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from noyau.kernels.certificates import Certifiers
from noyau.workers.worker import Worker

STARTED: list[Worker] = []
IDLE: list[Worker] = []


class Lasting(Certifiers):
    """Certificates are made in processes that earlier ones have left: a start takes half a second."""

    def __init__(self, given: Sequence[Worker], count: int) -> None:
        STARTED.extend(fresh := [Worker("its process") for _ in range(count - len(IDLE))])
        IDLE.extend(fresh)
        self.taken = [IDLE.pop() for _ in range(count)]
        super().__init__((*given, *self.taken), count)

    def start(self) -> None:
        for worker in self.taken:
            worker.start()

    def __exit__(self, *fault: object) -> None:
        super().__exit__(*fault)
        IDLE.extend(self.taken)


@pytest.fixture(autouse=True, scope="session")
def _lasting_certifiers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noyau.jobs.optimize.torch.candidates.Certifiers", Lasting)
        yield
    for worker in STARTED:
        worker.end()
