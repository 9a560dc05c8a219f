"""Size and read time of an episode, compared with the same tables as CSV.

    python benchmarks/collection/dataset_size.py DATASET

Prints one JSON object: sizes in MiB, read times in seconds (median of five), and their ratios to CSV.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView


def median_s(act: Callable[[], Any], times: int = 5) -> float:
    """Return the median time of `act`."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def measure(path: Path) -> dict[str, Any]:
    """Compare one episode's Parquet with CSV."""
    parquet = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    view = EpisodeView(path)
    with tempfile.TemporaryDirectory() as folder:
        for table in TABLES:
            view.table(table).to_pandas().to_csv(Path(folder) / f"{table}.csv", index=False)
        csv = sum(file.stat().st_size for file in Path(folder).iterdir())
        csv_read_s = median_s(lambda: pd.read_csv(Path(folder) / "metrics.csv"), 1)
    wide_s = median_s(lambda: EpisodeView(path).wide())
    return {
        "metric_rows": view.table("metrics", columns=["value"]).num_rows,
        "parquet_mib": round(parquet / 2**20, 2),
        "csv_mib": round(csv / 2**20, 1),
        "csv_over_parquet": round(csv / parquet, 1),
        "wide_frame_s": round(wide_s, 3),
        "csv_read_over_wide_frame": round(csv_read_s / wide_s, 1),
        "wide_frame_shape": list(view.wide().shape),
    }


def main() -> None:
    """Print the figures of a dataset's largest episode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    dataset = open_dataset(parser.parse_args().dataset)
    paths = [dataset.path(episode) for episode in dataset.episodes]
    largest = max(paths, key=lambda path: sum(f.stat().st_size for f in path.rglob("*.parquet")))
    print(json.dumps(measure(largest), indent=1))


if __name__ == "__main__":
    main()
