from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.datasets.checks import Finding
from faultset.datasets.checks.verification import chance_findings, circumstances, predictability, verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.versions import create_version
from faultset.datasets.views import EpisodeView

START_NS = 1_760_000_000_000_000_000


def errors(root, check: str | None = None) -> list[Finding]:
    found = [finding for finding in verify(root) if finding.severity == "error"]
    return [finding for finding in found if check is None or finding.check == check]


@pytest.fixture
def target(example_copy):
    """A file of the dataset that a test may damage."""
    dataset = open_dataset(example_copy)
    return dataset.path(dataset.episodes[1]) / "telemetry" / "spans.parquet"


def test_a_sound_dataset_has_no_errors(example_root):
    assert errors(example_root) == []


def test_a_flipped_byte_is_found_by_its_hash(example_copy, target):
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    assert any("SHA-256 differs" in finding.message for finding in errors(example_copy, "checksum"))


def test_a_truncated_table_is_one_sentence_naming_the_file(example_copy, target):
    os.truncate(target, target.stat().st_size // 2)
    (finding,) = errors(example_copy, "parquet")
    assert finding.file == target.relative_to(example_copy).as_posix()
    assert "truncated or damaged" in finding.message
    assert "\n" not in finding.message


def test_a_missing_and_a_foreign_file_are_named(example_copy, target):
    target.rename(target.with_name("more.parquet"))
    messages = {str(finding) for finding in errors(example_copy, "files")}
    assert len(messages) == 2
    assert any("spans.parquet: is missing" in message for message in messages)
    assert any("more.parquet: is not part of the version" in message for message in messages)


def test_damaged_episodes_do_not_keep_the_others_from_being_searched(example_copy, target):
    target.unlink()
    notes = [finding.message for finding in verify(example_copy) if finding.severity == "note"]
    assert any("views of 1 of 4 episodes were not searched" in note for note in notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["count"]), r"\(missing: count\)"),
        (
            lambda table: table.set_column(8, "count", table["count"].cast(pa.int64())),
            "column count must have type int32, but has int64",
        ),
        (lambda table: table.append_column("extra", table["count"]), r"\(unknown: extra\)"),
    ],
)
def test_a_table_of_another_schema_is_found(write_episode, tmp_path, recorded_again, change, message):
    file = write_episode("e1") / "telemetry" / "events.parquet"
    create_version(tmp_path, provenance={})
    pq.write_table(change(pq.read_table(file)), file)
    recorded_again(tmp_path)
    (finding,) = errors(tmp_path, "schema")
    import re

    assert re.search(message, finding.message)


def test_tables_written_by_another_writer_with_dictionaries_pass(write_episode, tmp_path, log):
    file = write_episode("e1", logs=[log(1, "hello")]) / "telemetry" / "logs.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(2, "service", table["service"].combine_chunks().dictionary_encode()), file)
    create_version(tmp_path, provenance={})
    assert errors(tmp_path) == []


@pytest.mark.parametrize("at_s", [-1, 100])
def test_rows_outside_the_view_are_counted(write_episode, tmp_path, log, at_s):
    write_episode("e1", logs=[log(1, "inside"), log(at_s, "outside")])
    create_version(tmp_path, provenance={})
    (finding,) = errors(tmp_path)
    assert finding.check == "window"
    assert "1 of 2 rows are outside the view" in finding.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": ["goe"]}, '"goe" is a target or root cause but not among the candidates'),
        ({"targets": []}, "the fault has no target"),
        ({"inject_start": START_NS + 10 * 10**9}, "does not start between the reference window and the end"),
        ({"inject_start": START_NS + 100 * 10**9}, "does not start between the reference window and the end"),
        ({"inject_start": None}, "the fault has no injection time"),
        ({"inject_done": START_NS + 45 * 10**9}, "are not in order"),
        ({"recover_start": START_NS + 90 * 10**9}, "the recovery starts before the view ends"),
        ({"effective": START_NS - 1}, "effective is outside the view"),
        ({"verdict": "none"}, 'verdict "none" must be manifest, latent, silent or unknown'),
        ({"view_end": START_NS + 99 * 10**9}, "view_end differs between the label and the context"),
    ],
)
def test_a_label_that_cannot_be_is_found(write_episode, tmp_path, fault_label, change, message):
    write_episode("e1", label=fault_label() | change)
    create_version(tmp_path, provenance={})
    assert any(message in finding.message for finding in errors(tmp_path, "label"))


def test_a_sound_fault_label_passes(write_episode, tmp_path, fault_label):
    write_episode("e1", label=fault_label())
    create_version(tmp_path, provenance={})
    assert errors(tmp_path) == []


def test_an_episode_without_fault_has_no_verdict_and_no_target(write_episode, tmp_path):
    write_episode("e1", label={"verdict": "manifest", "targets": ["geo"]})
    create_version(tmp_path, provenance={})
    messages = " ".join(finding.message for finding in errors(tmp_path, "label"))
    assert 'must have the verdict "none"' in messages
    assert "has targets or root causes" in messages


def test_an_older_version_can_be_verified(write_episode, tmp_path, log):
    write_episode("e1")
    create_version(tmp_path, provenance={})
    write_episode("e2", logs=[log(-1, "outside")])
    create_version(tmp_path, provenance={})
    assert [finding for finding in verify(tmp_path, "1.0.0") if finding.severity == "error"] == []
    assert len(errors(tmp_path)) == 1


def test_few_episodes_are_said_to_be_too_few(write_episode):
    view = EpisodeView(write_episode("e1"))
    (finding,) = chance_findings({"e1": view}, {"e1": True})
    assert finding.severity == "note"
    assert "1 episode with a fault and 0 without, but at least 8 of each are needed" in finding.message


def test_random_circumstances_are_at_chance():
    features = np.random.default_rng(2).standard_normal((24, 6))
    _, p_value = predictability(features, np.arange(24) % 2 == 0)
    assert p_value > 0.05


def test_a_circumstance_that_tells_is_found():
    features = np.random.default_rng(0).standard_normal((24, 6))
    faulty = np.arange(24) % 2 == 0
    features[:, 3] += 4 * faulty
    score, p_value = predictability(features, faulty)
    assert score > 0.9
    assert p_value <= 0.05


def test_row_counts_of_the_healthy_window_that_tell_are_a_warning(write_episode, log):
    views, faulty = {}, {}
    for number in range(16):
        episode = f"e{number:02}"
        start = START_NS + (number * 7919 % 16) * 10**12
        lines = [log(second + (start - START_NS) / 1e9, "x") for second in range(5 + 20 * (number % 2))]
        views[episode] = EpisodeView(write_episode(episode, start_ns=start, logs=lines))
        faulty[episode] = number % 2 == 1
    (finding,) = chance_findings(views, faulty)
    assert finding.severity == "warning"
    assert "predict the fault" in finding.message
    assert circumstances(views).shape[0] == 16
