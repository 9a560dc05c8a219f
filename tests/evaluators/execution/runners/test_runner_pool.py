from __future__ import annotations

import pytest

from faultset.evaluators.execution.runners import runner_process
from faultset.evaluators.execution.runners.runner_process import RunnerPool


class _Runner:
    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    close = stop


def test_runners_that_were_started_ahead_are_not_started_again(monkeypatch: pytest.MonkeyPatch):
    made: list[_Runner] = []

    def start() -> _Runner:
        made.append(_Runner())
        return made[-1]

    monkeypatch.setattr(runner_process, "RunnerProcess", start)
    pool = RunnerPool()
    pool.prestart(2)
    pool.prestart(2)
    with pool.lend("one"), pool.lend("two"):
        assert len(made) == 2
    pool.close()
