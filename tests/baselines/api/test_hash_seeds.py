"""Answers do not depend on the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ASK = """
import sys
from faultset.baselines.api.registry import list_baselines
from faultset.datasets.views import EpisodeView

view = EpisodeView(sys.argv[1])
start, end = view.reference[1], view.window[1]
for name, spec in sorted(list_baselines().items()):
    if spec.task == "localization" and spec.speed == "instant":
        found = spec.build().localize(view, start + (end - start) // 2)
        pods, metrics = sorted(found.pods.items()), sorted(found.metrics.items())
        print(name, list(found.scores.items()), metrics, pods, found.evidence)
"""


def test_equal_answers_whatever_the_hashes_of_names_are(example, faulty) -> None:
    path = Path(example.root) / "episodes" / faulty
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(path)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs[0][1]
    first, second = (answers.splitlines() for answers, _ in outputs)
    assert len(first) > 15
    assert [line.split(" ", 1)[0] for line in first] == [line.split(" ", 1)[0] for line in second]
    for one, other in zip(first, second, strict=True):
        assert one == other
