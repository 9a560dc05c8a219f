"""Versions and datasets made of others."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, UsageError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.derivation import (
    EpisodeFilter,
    filter_dataset,
    merge_datasets,
    split_dataset,
    write_dataset_card,
)
from faultset.datasets.examples import write_example_dataset


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(faultset, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_filter_makes_a_version_of_the_episodes_that_meet_all_conditions(example_copy):
    before = open_dataset(example_copy)
    faults = {episode: before.label(episode).fault for episode in before.episodes}
    one = next(fault for fault in faults.values() if fault)
    made = filter_dataset(
        example_copy, EpisodeFilter(faults=[one, "none"], apps=[before.view(before.episodes[0]).context.app])
    )
    assert set(made.episodes) == {episode for episode, fault in faults.items() if fault in (one, None)}
    assert made.version == "1.1.0"
    assert made.provenance["filtered_from"]["version"] == "1.0.0"
    assert made.files[made.episodes[0]] == before.files[made.episodes[0]]
    assert open_dataset(example_copy, "1.0.0").episodes == before.episodes
    assert not [finding for finding in verify(example_copy) if finding.severity == "error"]


def test_a_filter_names_what_it_does_not_know_and_makes_nothing(example_copy):
    with pytest.raises(UsageError, match='unknown verdict "manifset"; did you mean "manifest"'):
        filter_dataset(example_copy, EpisodeFilter(verdicts=["manifset"]))
    with pytest.raises(UsageError, match="a filter needs at least one condition"):
        filter_dataset(example_copy, EpisodeFilter())
    healthy = next(
        one for one in open_dataset(example_copy).episodes if not open_dataset(example_copy).label(one).fault
    )
    with pytest.raises(DataError, match="meets all conditions"):
        filter_dataset(example_copy, EpisodeFilter(episodes=[healthy], verdicts=["manifest"]))
    assert [path.name for path in (example_copy / "versions").iterdir()] == ["1.0.0.json"]


def test_another_seed_gives_different_subsets(tmp_path):
    write_example_dataset(tmp_path / "data", episodes=8, baseline_s=20, fault_s=20)
    before = open_dataset(tmp_path / "data")
    sides = [before.splits["by-episode"]["test"]]
    sides += [split_dataset(tmp_path / "data", seed=seed).splits["by-episode"]["test"] for seed in (1, 2, 1)]
    assert sides[1] == sides[3]
    assert len({tuple(side) for side in sides}) > 1
    assert open_dataset(tmp_path / "data").version == "1.0.3"


def test_a_merge_has_every_episode_once(example_root, tmp_path):
    write_example_dataset(tmp_path / "other", episodes=2, baseline_s=20, fault_s=20, seed=5)
    shutil.copytree(example_root, tmp_path / "again")
    made = merge_datasets([example_root, tmp_path / "other", tmp_path / "again"], tmp_path / "all")
    first, second = open_dataset(example_root), open_dataset(tmp_path / "other")
    assert set(made.episodes) == {*first.episodes, *second.episodes}
    assert all(made.files[episode] == first.files[episode] for episode in first.episodes)
    assert [one["version"] for one in made.provenance["merged_from"]] == ["1.0.0"] * 3
    assert made.provenance["synthetic"]
    assert not [finding for finding in verify(tmp_path / "all") if finding.severity == "error"]


def test_different_episodes_of_one_id_are_not_merged(example_root, example_copy, recorded_again, tmp_path):
    episode = open_dataset(example_copy).episodes[0]
    context = example_copy / "episodes" / episode / "context.json"
    context.write_text(context.read_text() + "\n")
    recorded_again(example_copy)
    with pytest.raises(DataError, match=f"have different data below episodes/{episode}"):
        merge_datasets([example_root, example_copy], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_a_card_is_written_for_an_older_version_and_keeps_what_people_wrote(example_copy):
    card = example_copy / "README.md"
    card.write_text(card.read_text() + "My own words.\n")
    filter_dataset(example_copy, EpisodeFilter(faults=["none"]))
    assert "version 1.1.0" in card.read_text()
    assert write_dataset_card(example_copy, version="1.0.0") == card
    assert "version 1.0.0" in card.read_text()
    assert card.read_text().endswith("My own words.\n")


def test_a_card_counts_episodes_with_original_stores_apart(example_copy, recorded_again):
    episode = open_dataset(example_copy).episodes[0]
    context = example_copy / "episodes" / episode / "context.json"
    content = json.loads(context.read_text()) | {"stores": {"cache": "memcached 1.6.18"}}
    context.write_text(json.dumps(content))
    recorded_again(example_copy)
    assert open_dataset(example_copy).view(episode).context.stores == {"cache": "memcached 1.6.18"}
    assert "original stores" in write_dataset_card(example_copy).read_text()


def test_the_commands_say_what_they_have_made(example_copy, tmp_path):
    code, text, _ = run("dataset", "filter", example_copy, "--verdicts", "none", "--json")
    assert (code, json.loads(text)["version"]) == (0, "1.1.0")
    assert run("dataset", "split", example_copy, "--seed", 3)[1].startswith(f"Version 1.1.1 of {example_copy}: ")
    assert run("dataset", "card", example_copy)[0] == 0
    code, _, errors = run("dataset", "merge", example_copy, tmp_path / "out")
    assert (code, "needs at least two datasets" in errors) == (2, True)
