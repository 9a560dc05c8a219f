"""Wrong requests and places: one sentence, the right exit code, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.collector.cli.collect import collect


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--faults target-prot --apps hotel", 'did you mean "target-port"'),
        ("--faults all --apps hotl", 'did you mean "hotel"'),
        ("--faults all --apps hotel --baseline 5", "is not a duration"),
        ("--faults all --apps hotel --baseline 5s", "--baseline must be at least 20 s"),
        ("--faults revoke-auth --apps hotel --targets geo", "its targets in hotel are mongodb-geo, mongodb-rate"),
        ("--faults all --apps hotel --jobs 0", "0 is not in the range"),
        ("--faults all --apps hotel --platform docker", "docker"),
        ("--apps hotel", "--faults"),
    ],
)
def test_a_wrong_request_gets_one_sentence_and_exit_code_2(words: str, sentence: str, tmp_path: Path) -> None:
    out = tmp_path / "data"
    done = CliRunner().invoke(collect, [*words.split(), "--out", str(out)])
    assert done.exit_code == 2, done.output
    assert sentence in done.output
    assert "Traceback" not in done.output
    assert not out.exists()


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    done = CliRunner().invoke(collect, ["--faults", "noop", "--apps", "hotel", "--normal", "1", "--out", str(tmp_path)])
    assert done.exit_code == 3
    assert "thesis.tex" in done.output
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "data"
    done = CliRunner().invoke(collect, ["--faults", "all", "--apps", "hotel", "--dry-run", "--out", str(out)])
    assert done.exit_code == 0
    assert "revoke-auth" in done.output
    assert not out.exists()


def test_without_a_redis_server_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    out = tmp_path / "data"
    done = CliRunner().invoke(collect, ["--faults", "noop", "--apps", "hotel", "--normal", "1", "--out", str(out)])
    assert done.exit_code == 4
    assert "install the package redis-server or valkey" in done.output
    assert not out.exists()
