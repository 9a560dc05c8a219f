from __future__ import annotations

import gc
import shutil
import threading
from pathlib import Path

import pytest

from faultset.core.errors import UsageError
from faultset.datasets import Dataset, EpisodeView, open_dataset
from faultset.datasets.kubectl.printing import ToolAnswer, answer_ok
from faultset.datasets.tools import toolset
from faultset.datasets.tools.recording import ViewClock, shared_tables
from faultset.datasets.tools.toolset import EpisodeTools
from tests.datasets.tools.conftest import POD_FAILURE


def test_the_clock_stands_some_seconds_after_an_alarm_and_never_outside_the_view(sample: Dataset) -> None:
    context = sample.view(POD_FAILURE).context
    alarm = context.view_start_ns + 10_000_000_000
    assert ViewClock.after(context, alarm, 5).now_ns == alarm + 5_000_000_000
    assert ViewClock.after(context, alarm, 1e6).now_ns == context.view_end_ns
    assert ViewClock(context, 0).now_ns > context.view_start_ns


def test_waiting_ends_at_the_end_of_the_view(sample: Dataset) -> None:
    context = sample.view(POD_FAILURE).context
    clock = ViewClock(context, context.reference_end_ns)
    assert clock.wait(5) == 5
    assert clock.wait(1e9) == (context.view_end_ns - context.reference_end_ns) / 1e9 - 5
    assert clock.left_s == 0
    with pytest.raises(UsageError, match="must not be negative"):
        clock.wait(-1)


def test_no_tool_shows_what_comes_after_now(sample: Dataset) -> None:
    context = sample.view(POD_FAILURE).context
    early = sample[POD_FAILURE].tools(ViewClock(context, context.reference_end_ns))
    assert early.call("list_events").status == "empty"
    rows = early.call("query", {"sql": "select epoch_ns(max(time)) from metrics"}).text.split("\n")[1]
    assert int(rows) < context.reference_end_ns
    for table in ("logs", "events", "objects", "spans"):
        times = early.recording.table(table)["time"].cast("int64").to_pylist()
        assert all(time < context.reference_end_ns for time in times)
    assert early.call("wait", {"seconds": 60}).status == "ok"
    assert early.call("list_events").status == "ok"


def test_a_span_is_known_only_when_it_has_ended(sample: Dataset) -> None:
    whole = sample.view(POD_FAILURE).spans()
    longest = whole.iloc[int(whole["duration_ns"].to_numpy().argmax())]
    context = sample.view(POD_FAILURE).context
    end = longest["time"].value + int(longest["duration_ns"])
    before, after = (
        sample[POD_FAILURE].tools(ViewClock(context, now)).recording.frame("spans") for now in (end - 1, end)
    )
    assert longest["span_id"] not in set(before["span_id"])
    assert longest["span_id"] in set(after["span_id"])


SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    episode = open_dataset(SAMPLE).episodes[0]
    return Path(shutil.copytree(SAMPLE / "episodes" / episode, tmp_path / "episodes" / episode))


def test_two_views_of_the_same_files_have_one_copy_of_the_tables(folder: Path) -> None:
    one, two = shared_tables(EpisodeView(folder)), shared_tables(EpisodeView(folder))
    assert one is two
    assert one.table("logs")[0] is two.table("logs")[0]


def test_files_that_were_replaced_are_read_again(folder: Path) -> None:
    before = shared_tables(EpisodeView(folder))
    file = folder / "telemetry" / "logs.parquet"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content)
    assert shared_tables(EpisodeView(folder)) is not before


def test_tables_go_with_the_last_session_that_asked_for_them(folder: Path) -> None:
    gc.collect()
    tools = EpisodeTools(EpisodeView(folder))
    tools.call("get_logs")
    assert any(view == EpisodeView(folder).file_stamps for view in _held())
    del tools
    gc.collect()
    assert not any(view == EpisodeView(folder).file_stamps for view in _held())


def test_sessions_at_different_times_see_what_each_may_see(folder: Path) -> None:
    from faultset.datasets.tools.recording import ViewClock

    view = EpisodeView(folder)
    late = EpisodeTools(view)
    early = EpisodeTools(view, ViewClock(view.context, view.context.view_start_ns + 20_000_000_000))
    assert late.recording.table("spans").num_rows > early.recording.table("spans").num_rows


def test_no_more_than_a_few_calls_are_computed_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, release = 0, 0, threading.Event()
    counting = threading.Lock()
    full = threading.Event()

    def slow(recording: object, command: str) -> ToolAnswer:
        nonlocal inside, most
        with counting:
            inside += 1
            most = max(most, inside)
            if inside == toolset.MAX_CONCURRENT_CALLS:
                full.set()
        assert release.wait(20)
        with counting:
            inside -= 1
        return answer_ok("done")

    monkeypatch.setattr(toolset, "kubectl", slow)
    tools = [EpisodeTools(EpisodeView(folder)) for _ in range(toolset.MAX_CONCURRENT_CALLS + 3)]
    callers = [threading.Thread(target=one.call, args=("kubectl", {"command": "kubectl get pods"})) for one in tools]
    for caller in callers:
        caller.start()
    assert full.wait(20)
    release.set()
    for caller in callers:
        caller.join()
    assert most == toolset.MAX_CONCURRENT_CALLS
    assert all(one.counts["ok"] == 1 for one in tools)


def _held() -> list[object]:
    from faultset.datasets.tools import recording as module

    return list(module._shared)
