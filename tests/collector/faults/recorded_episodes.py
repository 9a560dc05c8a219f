"""Episodes that were recorded with a fault, cut at the onset, and what several faults show in them."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path

import pandas as pd

from faultset.collector.apps import load_app
from faultset.datasets.format.truth import read_evidence, read_label
from faultset.datasets.views import EpisodeView


class RecordedEpisode:
    """One fault episode, cut at the onset."""

    def __init__(self, path: Path):
        self.view, self.label, self.evidence = EpisodeView(path), read_label(path), read_evidence(path)
        self.app = load_app(self.view.context.app)
        self.target: str = self.label.targets[0]
        self.parameters = self.label.parameters
        self.onset = pd.to_datetime(int(self.label.inject_start_ns or 0), utc=True)

    def after(self, table: pd.DataFrame, delay_s: float = 0.0, column: str = "time") -> pd.DataFrame:
        return table[table[column] >= self.onset + pd.Timedelta(seconds=delay_s)]

    def before(self, table: pd.DataFrame, column: str = "time") -> pd.DataFrame:
        return table[table[column] < self.onset]

    @cached_property
    def spans(self) -> pd.DataFrame:
        return self.view.spans()

    @cached_property
    def events(self) -> pd.DataFrame:
        return self.after(self.view.events())

    @cached_property
    def logs(self) -> pd.DataFrame:
        return self.after(self.view.logs())

    @cached_property
    def requests(self) -> pd.DataFrame:
        return self.view.requests()

    def states(self, kind: str, service: str) -> list[dict]:
        rows = self.after(self.view.objects())
        rows = rows[(rows["kind"] == kind) & (rows["service"] == service)]
        return [json.loads(state) for state in rows["state"]]

    def containers(self, service: str) -> list[dict]:
        return [c for pod in self.states("Pod", service) for c in pod.get("containers", [])]

    def reasons(self, service: str) -> set[str]:
        return set(self.events.loc[self.events["service"] == service, "reason"].astype(str))

    def messages(self, service: str) -> str:
        return "\n".join(self.logs.loc[self.logs["service"] == service, "message"])

    def series(self, service: str, metric: str) -> tuple[pd.Series, pd.Series]:
        wide = self.view.wide()
        column = wide[(service, metric)].dropna()
        return column[column.index < self.onset], column[column.index >= self.onset]

    def calls_of(self, kind: str, delay_s: float = 7.0) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Spans of calls to the target, by their callers (client) or by itself (server), before and after."""
        rpc = self.spans[self.spans["kind"] == kind]
        if self.app.services[self.target].store_driver is None:
            rpc = rpc[rpc["operation"].astype(str).isin([*self.app.services[self.target].operations])]
        else:
            rpc = rpc[rpc["peer_service" if kind == "client" else "service"].astype(str) == self.target]
        return self.before(rpc), self.after(rpc, delay_s)

    def errors_at_client(self, delay_s: float = 7.0) -> int:
        return int((self.after(self.requests, delay_s, "scheduled")["status"] == 500).sum())

    def most_restarts(self, service: str) -> int:
        return max((c["restartCount"] for c in self.containers(service)), default=0)

    def exit_codes(self, service: str) -> set[int]:
        return {c["exitCode"] for c in self.containers(service) if c.get("exitCode") is not None}

    @property
    def consumers(self) -> tuple[str, ...]:
        return self.app.consumers(self.target)


def assert_untouched(e: RecordedEpisode) -> None:
    assert e.most_restarts(e.target) == 0
    assert not {"Killing", "BackOff", "FailedScheduling"} & e.reasons(e.target)


def runs_on(e: RecordedEpisode) -> bool:
    """Whether the container was not restarted; only a cache that takes 2 s to answer makes its user panic."""
    if e.most_restarts(e.target) == 0:
        assert_untouched(e)
        return True
    assert e.app.services[e.target].stores
    assert 2 in e.exit_codes(e.target)
    assert "timeout" in e.messages(e.target)
    return False
