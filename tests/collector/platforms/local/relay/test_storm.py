"""Many connections while impairments come and go: nothing is mixed up, nothing stays open."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.local.messages import PodImpairment

if TYPE_CHECKING:
    from .conftest import Lab

STORM_S = 8.0
WEATHER = (
    (),
    (PodImpairment(pod="server-1", impairment=Loss(probability=0.3)),),
    (PodImpairment(pod="client-1", impairment=Delay(latency_s=0.05, jitter_s=0.05)),),
    (PodImpairment(pod="client-1", impairment=Partition()),),
    (PodImpairment(pod="server-1", impairment=Partition()),),
)


@pytest.mark.slow
def test_a_storm_mixes_nothing_up_and_leaves_nothing_open(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    before = lab.relay_files()
    until = time.monotonic() + STORM_S
    wrong: list[str] = []
    whole = threading.Semaphore(0)

    def talk(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError, ConnectionError), lab.connect(timeout_s=1.0) as client:
                for _ in range(rng.randrange(1, 20)):
                    data = rng.randbytes(rng.choice((10, 3_000, 150_000)))
                    if lab.echo(client, data) != data:
                        wrong.append(f"client {number} read what it had not sent")
                    whole.release()

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    rng = random.Random(5)
    while time.monotonic() < until:
        lab.impairments = rng.choice(WEATHER)
        lab.configure()
        time.sleep(0.3)
    lab.heal()
    for thread in threads:
        thread.join()
    assert not wrong
    assert whole.acquire(blocking=False)
    assert lab.eventually(lambda: lab.relay_files() == before, timeout_s=60)
