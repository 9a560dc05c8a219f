"""The explorer's page, its command and its server."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.explorer import page
from faultset.datasets.explorer.content import read_answers
from faultset.datasets.explorer.page import explorer_app, page_text, write_incident_page, write_page
from faultset.datasets.format.versions import create_version

HOSTILE = (
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "'\"><svg onload=document.title='pwned'>",
    "line\u2028separator\u2029and \\u003cb\\u003e @@DATA@@ <!--",
)


def blocks(text: str) -> dict[str, dict]:
    found = re.findall(r'<script type="application/octet-stream" id="([\w-]+)">([A-Za-z0-9+/=]*)</script>', text)
    return {name: json.loads(zlib.decompress(base64.b64decode(content))) for name, content in found}


@pytest.fixture
def hostile_root(write_episode, tmp_path) -> Path:
    start, second = 1_760_000_000_000_000_000, 10**9
    services = ("front", *HOSTILE[:3])
    line = {"pod": "p", "container": "c", "level": "error"}
    event = {"type": "Warning", "kind": "Pod", "count": 1}
    span = {"trace_id": "t" * 32, "attributes": "{}", "kind": "client", "duration_ns": 10**6, "status": "error"}
    write_episode(
        "e1",
        services=services,
        logs=[
            {**line, "time": start + n * second, "service": text, "message": text} for n, text in enumerate(HOSTILE)
        ],
        spans=[
            {**span, "span_id": f"{n:016x}", "time": start + n * second, "service": "front", "reported_service": text,
             "peer_service": text, "operation": text}
            for n, text in enumerate(HOSTILE)
        ],
        events=[
            {**event, "time": start + n * second, "reason": text, "name": text, "message": text}
            for n, text in enumerate(HOSTILE)
        ],
    )  # fmt: skip
    create_version(tmp_path, provenance={})
    return tmp_path


def test_the_page_holds_the_episodes_and_asks_nothing_of_a_network(example_root, tmp_path):
    dataset = open_dataset(example_root)
    size = write_page(dataset, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert size == len(text.encode())
    found = blocks(text)
    assert [row["id"] for row in found["dataset"]["episodes"]] == list(dataset.episodes)
    assert [found[f"episode-{n}"]["id"] for n in range(len(dataset.episodes))] == list(dataset.episodes)
    assert "default-src 'none'" in text
    assert "connect-src" not in text
    assert not re.search(r"""(src|href)=["']https?:""", text)


def test_the_policy_names_the_hash_of_the_one_script_and_the_one_style():
    text = page_text("")
    for tag in ("script", "style"):
        content = re.search(rf"<{tag}>(.*)</{tag}>", text, re.DOTALL)
        assert content is not None
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in text
        assert f"<{tag}" not in content[1]
    assert "innerHTML" not in text
    assert "insertAdjacentHTML" not in text
    assert "eval(" not in text


def test_nothing_of_the_data_is_markup(hostile_root, tmp_path):
    write_page(open_dataset(hostile_root), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "pwned" not in text
    assert "\u2028" not in text
    shown = json.dumps(blocks(text)["episode-0"], ensure_ascii=False)
    assert all(json.dumps(one, ensure_ascii=False)[1:-1] in shown for one in HOSTILE)


def test_a_page_without_truth_has_no_label(example_root, tmp_path):
    dataset = open_dataset(example_root)
    write_page(dataset, tmp_path / "page.html", truth=False)
    found = blocks((tmp_path / "page.html").read_text("utf-8"))
    assert not found["dataset"]["truth"]
    assert all("truth" not in row for row in found["dataset"]["episodes"])
    assert all("truth" not in found[f"episode-{n}"] for n in range(len(dataset.episodes)))


def write_results(folder: Path, episode: str, alarm_ns: int) -> Path:
    shared = {"kind": "method", "episode": episode, "seed": 0, "status": "ok", "ranking": "{}", "answer": "{}"}
    rows = [
        {**shared, "task": "detection", "baseline": "spot", "protocol": "detected", "alarm_ns": alarm_ns},
        {**shared, "task": "localization", "baseline": "max-z", "protocol": "oracle", "alarm_ns": None}
        | {"ranking": '{"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2}'},
        {**shared, "task": "localization", "baseline": "max-z", "protocol": "delayed", "alarm_ns": None},
        {**shared, "task": "rca", "baseline": "tree", "protocol": "oracle", "alarm_ns": None}
        | {"answer": '{"system_level": "Hardware", "fault_type": "Code Defect"}'},
    ]
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "results.parquet")
    return folder


def test_a_page_with_results_holds_what_methods_answered_on_the_time_axis(example_root, tmp_path):
    episode = next(iter(open_dataset(example_root)))
    results = write_results(tmp_path / "results", episode.id, episode.context.view_start_ns + 5 * 10**9)
    arguments = ["dataset", "explore", str(example_root), "--results", str(results), "--out", str(tmp_path / "x.html")]
    done = CliRunner().invoke(faultset, arguments)
    assert done.exit_code == 0, done.output
    first, second = (blocks((tmp_path / "x.html").read_text())[f"episode-{number}"]["answers"] for number in (0, 1))
    assert second == []
    detector, localizer, diagnoser = first
    assert (detector["method"], detector["alarm"]) == ("spot", 5.0)
    assert (localizer["protocol"], localizer["services"]) == ("oracle", ["b", "c", "d"])
    assert (diagnoser["level"], diagnoser["type"]) == ("Hardware", "Code Defect")


def test_a_folder_without_results_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="give a folder that evaluate wrote"):
        read_answers(tmp_path)


def test_a_page_that_would_be_too_large_is_not_written(example_root, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MAX_CHARACTERS", 1000)
    with pytest.raises(UsageError, match="choose fewer with --episodes, or use --serve"):
        write_page(open_dataset(example_root), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_chosen_episode(example_root, tmp_path):
    episode = open_dataset(example_root).episodes[1]
    out = tmp_path / "one.html"
    done = CliRunner().invoke(
        faultset, ["dataset", "explore", str(example_root), "--episodes", episode, "--out", str(out)]
    )
    assert (done.exit_code, done.stdout.partition(",")[0]) == (0, f"1 episode in {out}")
    assert [row["id"] for row in blocks(out.read_text("utf-8"))["dataset"]["episodes"]] == [episode]


def test_the_command_prints_json_of_what_it_wrote(example_root, tmp_path):
    out = tmp_path / "all.html"
    done = CliRunner().invoke(faultset, ["dataset", "explore", str(example_root), "--out", str(out), "--json"])
    episodes = list(open_dataset(example_root).episodes)
    assert json.loads(done.stdout) == {"file": str(out), "bytes": out.stat().st_size, "episodes": episodes}


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--episodes", "nonesuch"], 3, "has no episode"),
        (["--serve", "--episodes", "e1"], 2, "--serve shows all episodes"),
        (["--port", "8000"], 2, "--port needs --serve"),
        (["--out", "/proc/nowhere/page.html"], 2, "cannot be written"),
    ],
)
def test_a_bad_request_is_one_sentence(example_root, tmp_path, monkeypatch, arguments, code, sentence):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(faultset, ["dataset", "explore", str(example_root), *arguments])
    assert done.exit_code == code
    assert sentence in done.stderr
    assert list(tmp_path.iterdir()) == []


async def _answers(dataset, requests):
    async with TestClient(TestServer(explorer_app(dataset, "secret"))) as client:
        found = []
        for path, headers in requests:
            answer = await client.get(path, headers=headers)
            found.append((answer.status, await answer.read(), answer.headers))
        return found


def test_the_server_answers_only_those_who_have_the_token_and_mean_this_machine(example_root):
    import asyncio

    dataset = open_dataset(example_root)
    episode = dataset.episodes[0]
    local = {"Host": "127.0.0.1:1234"}
    requests = [
        ("/secret/", local),
        (f"/secret/episodes/{episode}", local),
        ("/wrong/", local),
        ("/", local),
        ("/secret/", {"Host": "evil.example"}),
        ("/secret/episodes/nonesuch", local),
        ("/secret/episodes/..%2f..%2fetc%2fpasswd", local),
    ]
    found = asyncio.run(_answers(dataset, requests))
    assert [status for status, _, _ in found] == [200, 200, 404, 404, 404, 404, 404]
    assert b"connect-src 'self'" in found[0][1]
    assert json.loads(zlib.decompress(found[1][1]))["id"] == episode
    assert found[1][2]["X-Content-Type-Options"] == "nosniff"


@pytest.mark.slow
def body_in_browser(page_file: Path, profile: Path) -> str:
    """Return what a browser makes of the main part of a page about the episode e1."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    options = ["--virtual-time-budget=10000", "--dump-dom", page_file.as_uri()]
    shown = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout
    assert 'data-ready="e1"' in shown
    assert "<title>e1" in shown
    return shown.partition('<main id="content"')[2].partition("</main>")[0]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("of_incident", [False, True])
def test_a_browser_shows_hostile_text_and_runs_nothing_of_it(hostile_root, tmp_path, of_incident):
    out, dataset = tmp_path / "page.html", open_dataset(hostile_root)
    if of_incident:
        start_ns = dataset["e1"].context.view_start_ns
        observations = [{"time_ns": start_ns + 70 * 10**9, "text": text} for text in HOSTILE]
        suspects = [{"service": HOSTILE[0], "observations": observations}]
        incident = {"moment_ns": start_ns + 60 * 10**9, "summary": HOSTILE[1], "suspects": suspects}
        write_incident_page(dataset["e1"], out, incident, {})
    else:
        write_page(dataset, out)
    body = body_in_browser(out, tmp_path / "profile")
    assert "pwned" in body
    assert not re.search(r"<(script|img|svg[^>]*onload)", body)
    assert ("Suspects" in body, "60 s of 100 s" in body) == (of_incident, of_incident)
