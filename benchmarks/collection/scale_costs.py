"""Disk space and object-store requests of many episodes, estimated from a few.

    pip install '.[evaluate,s3-tests]'
    python benchmarks/collection/scale_costs.py DATASET

Publishes the dataset to a server that speaks S3 on this machine, reads it from there with `dataset verify` and
`evaluate`, and counts the requests. Prints one JSON object: means per episode, and estimates for 1,000 and
100,000 episodes. Hours are for a single slot, from the times in the journals: from the plan to the snapshot of the
telemetry, without writing it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from moto.server import ThreadedMotoServer  # pyright: ignore[reportMissingImports]

from faultset.core.console import root as faultset
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.remote.file_systems import filesystem

NUMBERS = (1_000, 100_000)
BASELINES = "ksigma,max-z,baro,kubernetes-state,loudest-log"


class Requests(logging.Handler):
    """Counts the requests that the server logs, by method."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line of the server's log."""
        request = re.search(r'"(?:\x1b\[[0-9;]*m)*(GET|PUT|POST|HEAD|DELETE) ', record.getMessage())
        if request:
            self.seen[request[1]] += 1

    def count(self, act: Callable[[], object]) -> dict[str, int]:
        """Return the number of requests by method while `act` runs."""
        self.seen.clear()
        act()
        return dict(self.seen)


def run(*arguments: object) -> None:
    """Run a command of faultset."""
    result = CliRunner().invoke(faultset, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


def requests_of(dataset: Path) -> dict[str, dict[str, int]]:
    """Return how many requests each command makes."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
    log, requests = logging.getLogger("werkzeug"), Requests()
    log.addHandler(requests)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        filesystem("s3://shelf")[0].mkdir("shelf")
        url = "s3://shelf/data"
        with tempfile.TemporaryDirectory() as out:
            arguments = ("--baselines", BASELINES, "--workers", 1, "--protocol", "oracle", "--thresholds", "reference")
            return {
                "publish": requests.count(lambda: run("dataset", "publish", dataset, url)),
                "publish again": requests.count(lambda: run("dataset", "publish", dataset, url)),
                "verify": requests.count(lambda: run("dataset", "verify", url)),
                "evaluate": requests.count(lambda: run("evaluate", url, *arguments, "--out", out)),
            }
    finally:
        server.stop()


def episode_means(dataset: Dataset) -> dict[str, Any]:
    """Return the mean size, number of files and time of an episode."""
    number = len(dataset.episodes)
    records = [(name, record) for files in dataset.files.values() for name, record in files.items()]
    by_table: Counter[str] = Counter()
    for name, record in records:
        by_table[name.rpartition("/")[2].partition(".")[0]] += record.bytes
    views = [dataset.view(episode).window for episode in dataset.episodes]
    spans_s = []
    for episode in dataset.episodes:
        times = [record["time_ns"] for record in dataset[episode].journal]
        spans_s.append((max(times) - min(times)) / SECOND_NS)
    return {
        "view_s": round(sum(end - start for start, end in views) / number / SECOND_NS, 1),
        "files": round(len(records) / number, 1),
        "kib": round(sum(by_table.values()) / number / 1024, 1),
        "kib_by_file": {name: round(size / number / 1024, 1) for name, size in by_table.most_common()},
        "slot_s": round(sum(spans_s) / number, 1),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    root = parser.parse_args().dataset
    dataset = open_dataset(root)
    number, means, requests = len(dataset.episodes), episode_means(dataset), requests_of(root)
    print(
        json.dumps(
            {
                "episodes": number,
                "of_an_episode": means,
                "requests": requests,
                "of_many": {
                    f"{many:,}": {
                        "gib": round(means["kib"] * many / 2**20, 1),
                        "slot_hours": round(means["slot_s"] * many / 3600),
                        "requests": {
                            name: round(sum(seen.values()) * many / number) for name, seen in requests.items()
                        },
                    }
                    for many in NUMBERS
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
