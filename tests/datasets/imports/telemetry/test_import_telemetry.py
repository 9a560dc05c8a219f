"""Files of telemetry become episodes, and our own exports come back equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from faultset.core.errors import DataError, UsageError
from faultset.datasets import Dataset, ExportOptions, export_dataset, open_dataset, verify
from faultset.datasets.imports.telemetry.identity import Origin
from faultset.datasets.imports.telemetry.mapping import TelemetryMapping
from faultset.datasets.imports.telemetry.naming import name_services
from faultset.datasets.imports.telemetry.run import TelemetryOptions, import_telemetry

T = 1_760_000_000
NS = 10**9


def series(pod: str, start: int = T, seconds: int = 1200) -> dict[str, Any]:
    labels = {"__name__": "container_memory_rss", "pod": pod, "container": "server", "namespace": "shop"}
    return {"metric": labels, "values": [[start + at, str(at)] for at in range(0, seconds, 15)]}


def span(number: int, parent: str, service: str, pod: str) -> dict[str, Any]:
    facts = {"service.name": service, "k8s.pod.name": pod}
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in facts.items()]
    start = (T + number) * NS
    content = {
        "traceId": f"{number // 2 + 1:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "GET",
        "parentSpanId": parent,
    }
    content |= {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 5)}
    return {"resource": {"attributes": pairs}, "scopeSpans": [{"spans": [content]}]}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Metrics that name pods, traces that name services and pods, and a log that names a pod in its path."""
    folder = tmp_path / "shop"
    folder.mkdir()
    pods = ("cart-7d4b9c5f6-x2x4z", "web-5f6d7c8b9-abcd2")
    result = [series(pod) for pod in pods]
    (folder / "metrics.json").write_text(
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
    )
    spans = [
        entry
        for number in range(0, 1200, 2)
        for entry in (
            span(number, "", "web", pods[1]),
            span(number + 1, f"{number + 1:016x}", "cartservice", pods[0]),
        )
    ]
    (folder / "traces.jsonl").write_text("".join(json.dumps({"resourceSpans": [entry]}) + "\n" for entry in spans))
    log = folder / "pods" / f"shop_{pods[0]}_uid" / "server" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text("2025-10-09T08:55:00Z stderr F ERROR password=hunter2 rejected\n")
    return folder


def test_signals_name_a_service_in_the_same_way(files: Path, tmp_path: Path) -> None:
    import_telemetry([files], tmp_path / "out")
    dataset = open_dataset(tmp_path / "out")
    (episode,) = dataset.episodes
    view = dataset.view(episode)
    assert view.services == ("cartservice", "web")
    assert view.calls == (("web", "cartservice"),)
    assert view.context.workload_entry == "web"
    assert view.context.source_intervals_s["metrics"] == 15.0
    assert set(view.metrics()["service"]) == {"cartservice", "web"}
    (log,) = view.logs().to_dict("records")
    assert (log["service"], log["container"]) == ("cartservice", "server")
    assert log["message"].endswith("password=<redacted> rejected")
    assert set(view.spans()["kind"]) == {"server"}
    assert dataset.label(episode).no_fault_kind == "plain"
    assert not [finding for finding in verify(tmp_path / "out") if finding.severity == "error"]
    assert not (tmp_path / "out.staged").exists()


def test_incidents_become_episodes_with_their_cause_by_any_of_its_names(files: Path, tmp_path: Path) -> None:
    incidents = tmp_path / "incidents.yaml"
    entry = {"start": T + 700, "end": T + 1100, "cause": "cart", "alarm": {"service": "web", "time": T + 720}}
    healthy = {"start": T, "end": T + 300, "name": "quiet"}
    incidents.write_text(yaml.safe_dump({"incidents": [entry], "healthy": [healthy]}))
    import_telemetry([files], tmp_path / "out", TelemetryOptions(incidents=incidents))
    dataset = open_dataset(tmp_path / "out")
    labels = [dataset.label(episode) for episode in dataset.episodes]
    (faulty,) = [label for label in labels if label.is_faulty]
    assert faulty.targets == ("cartservice",)
    assert faulty.onset_ns == (T + 700) * NS
    assert faulty.view_end_ns == (T + 1100) * NS
    assert faulty.alarm_location is not None
    assert [label.no_fault_kind for label in labels if not label.is_faulty] == ["plain"]


def test_a_time_cuts_one_unlabelled_episode(files: Path, tmp_path: Path) -> None:
    import_telemetry([files], tmp_path / "out", TelemetryOptions(at="2025-10-09T09:00:00Z"))
    (episode,) = open_dataset(tmp_path / "out").episodes
    label = open_dataset(tmp_path / "out").label(episode)
    assert (label.no_fault_kind, label.verdict) == ("unlabelled", "unknown")
    assert label.reference_end_ns <= 1_760_000_400 * NS


def test_a_wrong_time_is_refused_before_files_are_read(files: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--at must be a time"):
        import_telemetry([files], tmp_path / "out", TelemetryOptions(at="yesterday"))
    assert not (tmp_path / "out.staged").exists()


def test_two_windows_of_the_same_system_have_different_ids(files: Path, tmp_path: Path) -> None:
    for name, end in (("a", T + 600), ("b", T + 900)):
        import_telemetry([files], tmp_path / name, TelemetryOptions(window=(T * NS, end * NS), app="shop"))
    first, second = open_dataset(tmp_path / "a"), open_dataset(tmp_path / "b")
    assert {*first.episodes}.isdisjoint(second.episodes)
    assert first.view(first.episodes[0]).context.app == "shop"


def test_the_mapping_file_decides_names_and_roles(files: Path, tmp_path: Path) -> None:
    mapping = tmp_path / "m.yaml"
    mapping.write_text("app: shop\nservices: {cartservice: basket, web: null}\nroles: {container_memory_rss: cpu}\n")
    import_telemetry([files], tmp_path / "out", TelemetryOptions(mapping=mapping))
    (episode,) = open_dataset(tmp_path / "out")
    assert episode.view.services == ("basket",)
    assert episode.context.app == "shop"
    assert episode.view.catalogue.role_of("container_memory_rss") == "cpu"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("incidents: []\n", "at least one entry"),
        ("incidents: [{start: soon, end: later}]\n", "must be a time such as"),
        ("incidents: [{start: 2025-10-09T09:00:00Z, end: 2025-10-09T08:00:00Z}]\n", "must end after it starts"),
        (
            "incidents: [{start: 2025-10-09T09:00:00Z, end: 2025-10-09T09:05:00Z, cause: carrt}]\n",
            "has no such service; choose one of",
        ),
        ("incidents: [{start: 2020-01-01T00:00:00Z, end: 2020-01-01T01:00:00Z}]\n", "no telemetry covers"),
        ("incidents: [{start: 2025-10-09T08:53:21Z, end: 2025-10-09T09:05:00Z}]\n", "10 s of telemetry before"),
        ("incidents: [{start: 1760000700, end: 1760001000, begin: 1}]\n", "unknown"),
        ("incidents: [", "is not YAML"),
    ],
)
def test_a_wrong_incident_file_is_refused_in_one_sentence(
    content: str, reason: str, files: Path, tmp_path: Path
) -> None:
    incidents = tmp_path / "incidents.yaml"
    incidents.write_text(content)
    with pytest.raises((UsageError, DataError), match=reason):
        import_telemetry([files], tmp_path / "out", TelemetryOptions(incidents=incidents))
    assert not (tmp_path / "out" / "versions").exists()


def test_another_plan_for_the_same_folder_is_refused(files: Path, tmp_path: Path) -> None:
    import_telemetry([files], tmp_path / "out")
    import_telemetry([files], tmp_path / "out")
    mapping = tmp_path / "m.yaml"
    mapping.write_text("app: shop\n")
    with pytest.raises(DataError, match="choose another folder"):
        import_telemetry([files], tmp_path / "out", TelemetryOptions(mapping=mapping))


@pytest.mark.parametrize("layout", ["otlp-json", "openmetrics", "wide-csv", "wide-parquet"])
def test_our_own_exports_come_back_equal(layout: str, example_root: Path, tmp_path: Path) -> None:
    source = open_dataset(example_root)
    export_dataset(layout, example_root, tmp_path / "texts", options=ExportOptions(step_s=1.0))
    episode = next(episode for episode in source.episodes if source.label(episode).is_faulty)
    path = next(iter([*(tmp_path / "texts").rglob(episode), *(tmp_path / "texts").rglob(f"{episode}.*")]))
    imported = _import_window(source, episode, path, tmp_path)
    own, read = source.view(episode), imported.view(imported.episodes[0])
    assert read.window == own.window
    if layout.startswith("wide"):
        pd.testing.assert_frame_equal(read.wide(), own.wide().dropna(axis=1, how="all"), check_freq=False)
        return
    tables = own.tables if layout == "otlp-json" else ("metrics",)
    for table in tables:
        pd.testing.assert_frame_equal(_sorted(read, table), _sorted(own, table), check_categorical=False)


def _import_window(source: Dataset, episode: str, path: Path, folder: Path) -> Dataset:
    label = source.label(episode)
    assert label.onset_ns is not None
    before = f"{(label.onset_ns - label.view_start_ns) / NS:.9f}s"
    entry = {"start": str(label.onset_ns), "end": str(label.view_end_ns), "before": before, "cause": label.targets[0]}
    (folder / "incidents.yaml").write_text(yaml.safe_dump([entry]))
    options = TelemetryOptions(incidents=folder / "incidents.yaml", redact=False)
    import_telemetry([path], folder / "back", options)
    return open_dataset(folder / "back")


def _sorted(view: Any, table: str) -> pd.DataFrame:
    frame = view.table(table).to_pandas().drop(columns="episode").astype(object)
    return frame.sort_values(list(frame.columns), key=lambda column: column.astype(str), ignore_index=True)


def test_names_that_differ_in_form_and_pods_without_a_process_are_matched() -> None:
    origins = {
        "spans": {
            Origin(service="cart-service").text(): 9,
            Origin(service="reviews.books", namespace="books").text(): 1,
        },
        "metrics": {Origin(pod="cart-7d4b9c5f6-x2x4z").text(): 5, Origin(host="node-1").text(): 2},
        "logs": {Origin(service="CartService").text(): 3, Origin(pod="reviews-0", namespace="books").text(): 1},
    }
    names = name_services(origins, TelemetryMapping())
    assert names.services == ("cart-service", "reviews")
    assert names.find("cart") == "cart-service"
    assert names.unmatched == {"metrics": 2}
