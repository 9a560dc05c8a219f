"""Draw the limit of the latent test from no-fault episodes.

    python -m faultset.collector.verdicts.calibration DATASET... > calibration.json

Only plain episodes count, in the disturbed and sham ones services are meant to move; and of those only the ones in
which the SLI test stayed silent, because otherwise the host was too busy for the episode to be called healthy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faultset.collector.plans.plan import Plan, draw
from faultset.collector.verdicts.latent import service_scores
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.truth import read_evidence, read_journal

QUANTILE = 0.99


def windows(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the score of every service in every plain episode, at the instant its plan drew as onset."""
    rows = []
    for episode in dataset.episodes:
        evidence = read_evidence(dataset.path(episode))
        noticed = evidence.loc[evidence["check"] == "sli", "passed"].any()
        if dataset.label(episode).no_fault_kind != "plain" or noticed:
            continue
        notes = read_journal(dataset.path(episode))
        plan = Plan.from_json(next(record["args"] for record in notes if record.get("verb") == "plan"))
        view = dataset.view(episode)
        onset_ns = view.view[0] + int(draw(plan).onset_s * 1e9)
        scores = service_scores(view.wide(plan.step_s), reference_end_ns=view.reference[1], onset_ns=onset_ns)
        rows += [
            {
                "episode": episode,
                "profile": plan.profile,
                "service": score.service,
                "score": round(score.score, 2),
                "series": score.series,
            }
            for score in scores
        ]
    return rows


def calibrate(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the calibration: the score that 1 % of the windows exceed, with the windows."""
    scores = np.array([row["score"] for row in rows])
    return {
        "threshold": round(float(np.quantile(scores, QUANTILE, method="higher")), 2),
        "quantile": QUANTILE,
        "windows": len(rows),
        "episodes": len({row["episode"] for row in rows}),
        "scores": sorted(rows, key=lambda row: -row["score"]),
    }


def main() -> None:
    """Print the calibration drawn from the datasets named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+", type=Path)
    rows = [row for path in parser.parse_args().datasets for row in windows(open_dataset(path))]
    if not rows:
        sys.exit("there is no plain no-fault episode in these datasets")
    json.dump(calibrate(rows), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
