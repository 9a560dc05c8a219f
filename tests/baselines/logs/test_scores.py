"""Log anomaly scores learn from healthy lines only."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.logs.scores import LogLines, score_logs


def test_nothing_is_learned_from_lines_after_the_healthy_time() -> None:
    usual = ["a asked", "b found", "c served"] * 40
    for late in (["boom boom boom"] * 60, ["boom boom boom"] * 3 + usual[:57]):
        messages = [*usual, *late]
        lines = LogLines(
            names=("geo",),
            times_ns=np.arange(len(messages)),
            services=np.zeros(len(messages), dtype=np.int64),
            messages=messages,
        )
        found = score_logs(lines, healthy_end_ns=120, start_ns=60, step_ns=30, bins=4)
        assert found.system[:2].tolist() == [0, 0]
        # However often the new line comes, it stays unexpected.
        assert found.system[2] == pytest.approx(late[:30].count("boom boom boom") / 30, abs=0.05)
        assert found.unexpected_lines[0][:2] == ("geo", "boom boom boom")
