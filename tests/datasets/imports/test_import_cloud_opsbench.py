"""Cases of Cloud-OpsBench in the layout of its repository, and their traps."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer

SECOND = 10**9
START = datetime(2025, 12, 25, 15, 42, 15)
START_NS = 1_766_648_535 * SECOND
"""The start in UTC; the source's clock is eight hours ahead."""
HEADER = "time,cartservice-cpu,cartservice-p95latency,redis-cart-cpu,worker-02-cpu,worker-02-tcp_retans"


def write_case(
    root: Path,
    name: str,
    *,
    fault_object: str = "service/cartservice",
    root_cause: str = "pod_cpu_overload",
    alert_s: int = 65,
    rows: int = 37,
    header: str = HEADER,
) -> Path:
    folder = root / name
    raw = folder / "raw_data"
    raw.mkdir(parents=True)
    result = {"fault_taxonomy": "Performance_Fault", "fault_object": fault_object, "root_cause": root_cause}
    (folder / "metadata.json").write_text(
        json.dumps({"namespace": "boutique", "query": "Slow.", "difficulty": "hard", "result": result})
    )
    (folder / "tool_cache.json").write_text("{}")
    alerts = [
        {"type": "Service", "name": "cartservice", "time_range": f"{at(alert_s)} ~ {at(180)}"},
        {"type": "Node", "name": "worker-02", "time_range": f"{at(alert_s + 5)} ~ {at(180)}"},
    ]
    (raw / "alert.json").write_text(json.dumps({"status": "has_anomalies", "alerts": alerts}))
    lines = [f"{at(5 * row)},0.0{row},{row + 1},0.005,3.1,0" for row in range(rows)]
    (raw / "metrics.csv").write_text("\n".join(["\ufeff" + header, *lines]))
    return folder


def at(seconds: int) -> str:
    return str(START + timedelta(seconds=seconds))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "benchmark"
    write_case(root, "boutique/performance/1")
    write_case(root, "boutique/performance/2", fault_object="node/worker-02", root_cause="node_network_delay")
    still = write_case(root, "boutique/admission/1")
    (still / "raw_data" / "metrics.csv").unlink()
    return root


def load(root: Path, out: Path) -> Dataset:
    import_dataset("cloud-opsbench", root, out, workers=1)
    return open_dataset(out)


def test_cases_with_metrics_become_episodes_that_begin_at_the_first_alert(root: Path, tmp_path: Path) -> None:
    dataset = load(root, tmp_path / "out")
    labels = [dataset.label(episode) for episode in dataset.episodes]

    assert {(label.fault, label.targets[0]) for label in labels} == {
        ("pod_cpu_overload", "cartservice"),
        ("node_network_delay", "worker-02"),
    }
    assert {label.inject_start_ns for label in labels} == {START_NS + 65 * SECOND}
    assert {label.fault_type for label in labels} == {"resource", "Network/Storage Issue"}
    view = dataset.view(dataset.episodes[0])
    assert view.context.app == "boutique"
    assert set(view.services) == {"cartservice", "redis-cart", "worker-02"}
    rows = view.metrics()
    latency = rows[(rows["service"] == "cartservice") & (rows["metric"] == "p95latency")]
    assert latency["value"].tolist() == [float(row + 1) for row in range(37)]
    assert int(latency["time"].astype("int64").iloc[0]) == START_NS


def test_doctor_counts_cases_that_hold_one_moment_only(root: Path) -> None:
    report = examine(root)
    assert report.format == "cloud-opsbench"
    assert [issue.problem for issue in report.data_issues] == [
        "1 case without raw_data/metrics.csv: only the state at one moment is recorded."
    ]


def test_it_keeps_what_importers_promise(root: Path) -> None:
    check_importer("cloud-opsbench", root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fault_object": "service/adservice"}, "adservice, the object at fault, has no metrics"),
        ({"fault_object": "cartservice"}, "must name a fault_object such as service/cart"),
        ({"alert_s": 900}, "the first alert must be within the metrics"),
        ({"header": HEADER.replace("redis-cart-cpu", "cartservice-cpu")}, "once each"),
        ({"header": HEADER.replace("redis-cart-cpu", "load")}, "columns service-metric"),
        ({"rows": 0}, "Empty CSV file"),
    ],
)
def test_a_case_that_contradicts_itself_is_refused(change: dict, message: str, tmp_path: Path) -> None:
    root = tmp_path / "benchmark"
    write_case(root, "boutique/performance/1", **change)
    with pytest.raises(DataError, match=message):
        load(root, tmp_path / "out")


@pytest.mark.parametrize("name", ["metadata.json", "raw_data/alert.json", "raw_data/metrics.csv"])
def test_a_damaged_file_is_named(name: str, root: Path, tmp_path: Path) -> None:
    (root / "boutique/performance/1" / name).write_text("{")
    with pytest.raises(DataError, match=name):
        load(root, tmp_path / "out")
