"""Requests to a runner, of detectors that a test has made up."""

from __future__ import annotations

from typing import Any

import cloudpickle

from faultset.baselines.registry import BaselineSpec
from faultset.evaluators.execution.runners.messages import AnswerRequest, Blob, MethodProcess
from faultset.evaluators.execution.runners.runner_process import next_number


def detection_request(name: str, method: Any, process: MethodProcess, episode: str) -> AnswerRequest:
    """Ask a fitted detector, which reads metrics, about an episode, in a process of that description."""
    spec = BaselineSpec(name=name, task="detection", tables=("metrics",), factory=type(method))
    return AnswerRequest(
        number=next_number(),
        process=process,
        action="detect",
        spec=Blob.of(cloudpickle.dumps(spec)),
        model=Blob.of(cloudpickle.dumps(method)),
        seed=0,
        episode=episode,
    )
