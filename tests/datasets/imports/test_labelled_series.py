"""Labelled series of SMD, ASD, NAB, Microsoft and TSB-AD as recordings, on miniature copies, and their traps."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from faultset.core.errors import DataError
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions, export_dataset
from faultset.datasets.imports.formats import labelled_series
from faultset.datasets.imports.formats.labelled_series import START_NS
from faultset.datasets.imports.formats.smd import read_array
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer
from tests.datasets.imports import series_samples as samples
from tests.datasets.imports.importing import load, problems

MINUTE_NS = 60 * 10**9
SAMPLES: dict[str, Callable[[Path], Path]] = {
    "smd": samples.write_pickles,
    "nab": samples.write_nab,
    "cloud-monitoring": samples.write_cloud,
    "tsb-ad": samples.write_tsb_ad,
}


def bounds(dataset: Dataset, step_ns: int) -> list[tuple[int, int]]:
    """Return start and end of each incident in steps from the start of the recording."""
    (recording,) = dataset.recordings()
    frame = recording.incidents()
    pairs = zip(frame["start_ns"].tolist(), frame["end_ns"].tolist(), strict=True)
    return [((start - recording.start_ns) // step_ns, (end - recording.start_ns) // step_ns) for start, end in pairs]


@pytest.mark.parametrize("name", SAMPLES)
def test_it_keeps_what_importers_promise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTSET_MUTATIONS", os.environ.get("FAULTSET_MUTATIONS", "8"))
    SAMPLES[name](tmp_path / "source")
    check_importer(name, tmp_path / "source")


def test_a_machine_becomes_a_recording_with_its_anomalies_and_the_authors_training_part(tmp_path: Path) -> None:
    samples.write_pickles(tmp_path / "source")
    dataset = load("smd", tmp_path / "source", tmp_path / "out")
    (recording,) = dataset.recordings()

    assert (recording.context.app, recording.context.services) == ("smd", ("machine-9-1",))
    assert recording.start_ns == START_NS
    assert bounds(dataset, MINUTE_NS) == [
        (samples.TRAIN + 5, samples.TRAIN + 9),
        (samples.TRAIN + 12, samples.TRAIN + 13),
    ]
    incidents = recording.truth.incidents
    assert [incident.parameters["metrics"] for incident in incidents] == [["metric_01", "metric_03"], ["metric_02"]]
    assert {(incident.fault, incident.verdict, incident.targets) for incident in incidents} == {
        ("anomaly", "unknown", ("machine-9-1",))
    }
    split = dataset.recording_splits["by-source"]
    middle_ns = START_NS + samples.TRAIN * MINUTE_NS
    assert split.train == ((recording.id, START_NS, middle_ns),)
    assert split.test == ((recording.id, middle_ns, recording.end_ns),)
    arrays = samples.machine_arrays()
    expected = np.concatenate([arrays["train"], arrays["test"]])
    np.testing.assert_array_equal(recording.wide(step_s=60).to_numpy(), expected.astype(float))


def test_text_files_give_the_same_recording_as_pickles(tmp_path: Path) -> None:
    samples.write_pickles(tmp_path / "pickles", "machine-9-2")
    samples.write_texts(tmp_path / "texts")
    first, second = (
        load("smd", tmp_path / name, tmp_path / f"out-{name}").recordings()[0] for name in ("pickles", "texts")
    )

    assert first.id == second.id
    assert first.incidents()[["start", "end"]].equals(second.incidents()[["start", "end"]])
    np.testing.assert_allclose(first.wide(step_s=60), second.wide(step_s=60), atol=1e-6)


def test_machines_of_asd_have_steps_of_five_minutes(tmp_path: Path) -> None:
    samples.write_pickles(tmp_path / "source", "omi-99")
    (recording,) = load("smd", tmp_path / "source", tmp_path / "out").recordings()

    assert (recording.context.app, recording.context.sampling_step_s) == ("asd", 300.0)
    assert recording.duration_s == 300 * (samples.TRAIN + samples.TEST)


def test_chunks_divide_long_series_and_an_anomaly_may_last_beyond_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples.write_pickles(tmp_path / "source")
    whole = load("smd", tmp_path / "source", tmp_path / "whole")
    monkeypatch.setattr(labelled_series, "CHUNK_SAMPLES", 37 * samples.METRICS)
    divided = load("smd", tmp_path / "source", tmp_path / "divided")

    assert len(divided.recordings()[0].view.chunks) == 2
    assert len(divided.recordings()[0].view.segments) == 1
    assert bounds(divided, MINUTE_NS) == bounds(whole, MINUTE_NS)


def test_the_last_sample_of_a_window_of_nab_belongs_to_the_anomaly(tmp_path: Path) -> None:
    samples.write_nab(tmp_path / "source", windows=((3, 5), (20, 24)))
    dataset = load("nab", tmp_path / "source", tmp_path / "out")

    assert bounds(dataset, 5 * MINUTE_NS) == [(3, 6), (20, 25)]
    (stretch,) = dataset.recording_splits["by-source"].train
    # 15 % of 40 samples are 6; the anomaly of samples 3 to 5 is not divided
    assert (stretch.end_ns - stretch.start_ns) // (5 * MINUTE_NS) == 6


@pytest.mark.parametrize("quoted", [True, False])
def test_times_with_and_without_zone_and_line_ends_of_windows_are_read(quoted: bool, tmp_path: Path) -> None:
    samples.write_cloud(tmp_path / "source", quoted=quoted)
    dataset = load("cloud-monitoring", tmp_path / "source", tmp_path / "out")

    assert bounds(dataset, 5 * MINUTE_NS) == [(10, 12), (30, 31)]
    assert "by-source" not in dataset.recording_splits
    (recording,) = dataset.recordings()
    assert (recording.context.app, recording.context.services) == ("api-latency", ("api-9",))


def test_repeated_and_reversed_times_are_sorted_and_reported(tmp_path: Path) -> None:
    file = samples.write_nab(tmp_path / "source")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], lines[3].replace("2.5", "99"), *lines[5:8], lines[4], *lines[8:]]))
    (recording,) = load("nab", tmp_path / "source", tmp_path / "out").recordings()

    assert recording.wide(step_s=300).iloc[:, 0].tolist()[:6] == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert problems(tmp_path / "source") == ["1 of 41 times are repeated.", "The times are not in order."]


def test_a_series_of_tsb_ad_and_its_export_have_the_same_values_and_labels(tmp_path: Path) -> None:
    samples.write_tsb_ad(tmp_path / "source")
    dataset = load("tsb-ad", tmp_path / "source", tmp_path / "out")
    export_dataset("tsb-ad", tmp_path / "out", tmp_path / "csv", options=ExportOptions())
    (file,) = (tmp_path / "csv").glob("001_*.csv")

    assert file.name == "001_out_id_1_SED_tr_15_1st_20.csv"
    again = load("tsb-ad", tmp_path / "csv", tmp_path / "again")
    assert bounds(again, MINUTE_NS) == bounds(dataset, MINUTE_NS) == [(20, 23)]
    (first,), (second,) = dataset.recordings(), again.recordings()
    np.testing.assert_array_equal(first.wide(step_s=60), second.wide(step_s=60))


def test_a_recording_without_an_anomaly_is_left_out_of_the_export_with_a_reason(tmp_path: Path) -> None:
    samples.write_nab(tmp_path / "source", windows=())
    load("nab", tmp_path / "source", tmp_path / "out")

    with pytest.raises(DataError, match="TSB-AD needs an anomaly"):
        export_dataset("tsb-ad", tmp_path / "out", tmp_path / "csv")
    with pytest.raises(DataError, match="holds only episodes"):
        export_dataset("wide-csv", tmp_path / "out", tmp_path / "csv")


def test_an_import_that_was_killed_within_a_recording_writes_it_again(tmp_path: Path) -> None:
    samples.write_tsb_ad(tmp_path / "source")
    dataset = load("tsb-ad", tmp_path / "source", tmp_path / "out")
    (recording,) = dataset.recordings()
    incomplete = recording.path.with_name(f"{recording.id}.incomplete")
    recording.path.rename(incomplete)
    result = import_dataset("tsb-ad", tmp_path / "source", tmp_path / "out", workers=1)

    assert (result.written, result.recordings) == (1, 1)
    assert not incomplete.exists()


def rewrite(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def without_label(root: Path) -> None:
    (samples.write_pickles(root) / "machine-9-1_test_label.pkl").unlink()


def with_short_labels(root: Path) -> None:
    file = samples.write_pickles(root) / "machine-9-1_test_label.pkl"
    file.write_bytes(pickle.dumps(np.zeros(samples.TEST - 1)))


def with_infinity(root: Path) -> None:
    file = samples.write_pickles(root) / "machine-9-1_test.pkl"
    array = samples.machine_arrays()["test"]
    array[4, 1] = np.inf
    file.write_bytes(pickle.dumps(array))


def with_other_metrics(root: Path) -> None:
    file = samples.write_pickles(root) / "machine-9-1_train.pkl"
    file.write_bytes(pickle.dumps(np.zeros((5, 2))))


def with_wrong_notes(root: Path) -> None:
    samples.write_pickles(root)
    (root / "data/interpretation_label/machine-9-1.txt").write_text("5-8:1,9")


def with_text_value(root: Path) -> None:
    rewrite(samples.write_nab(root), ",7.5", ",seven")


def with_bad_time(root: Path) -> None:
    rewrite(samples.write_nab(root), "2014-04-10 00:10:00", "yesterday")


def without_windows(root: Path) -> None:
    samples.write_nab(root)
    (root / "labels/combined_windows.json").write_text("{}")


def with_window_outside(root: Path) -> None:
    samples.write_nab(root)
    window = ["2014-05-01 00:00:00", "2014-05-01 01:00:00"]
    (root / "labels/combined_windows.json").write_text(json.dumps({"realAWSCloudwatch/cpu_9.csv": [window]}))


def with_third_label(root: Path) -> None:
    rewrite(samples.write_cloud(root), ",10,1", ",10,2")


def without_column(root: Path) -> None:
    rewrite(samples.write_cloud(root), "Label", "Mark")


def with_long_training(root: Path) -> None:
    file = samples.write_tsb_ad(root)
    file.rename(file.with_name(file.name.replace("tr_15", "tr_40")))


def with_ragged_rows(root: Path) -> None:
    rewrite(samples.write_tsb_ad(root), "7.25,-7,0", "7.25,-7")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("smd", without_label, "must have machine-9-1_test_label.pkl, but .* lacks it; restore"),
        ("smd", with_short_labels, "a label for each of the 20 rows of the data, but has 19; restore"),
        ("smd", with_infinity, "must have finite numbers, but has inf in row 5; correct"),
        ("smd", with_other_metrics, "must have the same metrics, but have 2 and 3; restore"),
        ("smd", with_wrong_notes, "line 1 of .* within 20 steps and 3 metrics, but is .5-8:1,9.; restore"),
        ("nab", with_text_value, 'column "value" of .* must have numbers, but has "seven" in row 8; correct'),
        ("nab", with_bad_time, 'must have times like .*, but has "yesterday" in row 3; correct'),
        ("nab", without_windows, "must have the windows of realAWSCloudwatch/cpu_9.csv, but lacks them; restore"),
        ("nab", with_window_outside, "anomalies of cpu_9 must be between .*, but one lasts from .*; correct"),
        ("cloud-monitoring", with_third_label, "must have labels 0 and 1, but has 2 in row 11"),
        ("cloud-monitoring", without_column, "must have the columns .*, but lacks Label"),
        ("tsb-ad", with_long_training, "must be shorter than its 40 samples, but has 40; correct"),
        ("tsb-ad", with_ragged_rows, "must be a CSV file with rows of the same length .*; restore"),
    ],
)
def test_wrong_data_is_refused_with_one_sentence(
    name: str, write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    write(tmp_path / "source")

    with pytest.raises(DataError, match=message):
        import_dataset(name, tmp_path / "source", tmp_path / "out", workers=1)
    assert not [*(tmp_path / "out").glob("recordings/*")]


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("hostile",)


HOSTILE = {
    "a call": pickle.dumps(Hostile()),
    "a call within an array": pickle.dumps(np.array([Hostile()], dtype=object)),
    "another object": pickle.dumps({"a": 1}),
    "a text": pickle.dumps("array"),
    "a dtype": pickle.dumps(np.dtype("f4")),
    "texts": pickle.dumps(np.array(["a", "b"])),
    "half a pickle": pickle.dumps(np.zeros(100))[:300],
    "no pickle": b"values",
    "an index that reserves memory": b"\x80\x03Nr\xff\xff\xff\x7f.",
    "an array that reserves memory": (
        b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"
        b"C\x01b\x87R."
    ),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_and_damaged_pickles_are_refused_and_run_nothing(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("array.pkl").write_bytes(content)

    with pytest.raises(DataError, match=r"array\.pkl must be a pickle of one numpy array of numbers, but .*; restore"):
        read_array(Path("array.pkl"))
    assert not Path("hostile").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ["float32", "float64", ">f8", "int64", "bool"])
def test_arrays_of_every_protocol_and_number_type_are_read(protocol: int, kind: str, tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3).astype(kind))
    (tmp_path / "array.pkl").write_bytes(pickle.dumps(array, protocol))

    np.testing.assert_array_equal(read_array(tmp_path / "array.pkl"), array.astype(float))
