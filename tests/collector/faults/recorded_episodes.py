"""Episodes that were recorded with a fault, cut at the onset, and what several faults show in them."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path

import pandas as pd

from faultset.collector.apps import load_app
from faultset.collector.runtime.app_code import load_persona
from faultset.collector.verdicts.latent import rolled_out_services
from faultset.datasets.format.labels import read_evidence, read_label
from faultset.datasets.views import EpisodeView


class RecordedEpisode:
    """One fault episode, cut at the onset."""

    def __init__(self, path: Path):
        self.view, self.label, self.evidence = EpisodeView(path), read_label(path), read_evidence(path)
        self.app = load_app(self.view.context.app)
        self.persona = load_persona(self.app)
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
        rpc = rpc[rpc["peer_service" if kind == "client" else "service"].astype(str) == self.target]
        return self.before(rpc), self.after(rpc, delay_s)

    def is_error(self, spans: pd.DataFrame) -> pd.Series:
        """Which spans are errors; the test of an application whose spans do not tell must not ask."""
        assert self.spans_tell_outcome
        return spans["status"] == "error"

    @property
    def spans_tell_outcome(self) -> bool:
        return self.persona.spans.reports_outcome

    @property
    def retries_logins(self) -> bool:
        """Whether a program that cannot use its database tries again, rather than ending."""
        return self.persona.login_pause_s is not None

    def _errors_at_client(self, delay_s: float) -> pd.Series:
        return self.after(self.requests, delay_s, "scheduled")["status"] == 500

    def errors_at_client(self, delay_s: float = 7.0) -> int:
        return int(self._errors_at_client(delay_s).sum())

    def error_share_at_client(self, delay_s: float = 7.0) -> float:
        return float(self._errors_at_client(delay_s).mean())

    def most_restarts(self, service: str) -> int:
        """How often a container of a service was restarted since the onset, at most."""
        rows = self.view.objects()
        pods = rows[(rows["kind"] == "Pod") & (rows["service"] == service)]
        earlier, later = self._restarts(self.before(pods)), self._restarts(self.after(pods))
        return max([0, *(count - earlier.get(container, 0) for container, count in later.items())])

    @staticmethod
    def _restarts(pods: pd.DataFrame) -> dict[tuple[str, str], int]:
        """The highest count of restarts that the states of pods tell, by pod and container."""
        found: dict[tuple[str, str], int] = {}
        for pod, state in zip(pods["name"], pods["state"], strict=True):
            for container in json.loads(state).get("containers", []):
                key = (str(pod), container["name"])
                found[key] = max(found.get(key, 0), container["restartCount"])
        return found

    @property
    def rolled_out_services(self) -> frozenset[str]:
        """Services whose pods a harmless change replaced beside the fault; their new pods start under it."""
        return frozenset(rolled_out_services(self.evidence))

    def spans_of_hit_pod(self, spans: pd.DataFrame) -> pd.DataFrame:
        """Those of the target's own spans that come from the pod that the fault hit, which may have siblings."""
        return spans[spans["pod"].astype(str) == self.parameters["pod"]]

    @property
    def replicas(self) -> int:
        return self.app.services[self.target].replicas

    def exit_codes(self, service: str) -> set[int]:
        return {c["exitCode"] for c in self.containers(service) if c.get("exitCode") is not None}

    def calls_of_path(self) -> int:
        """How many calls of the path that the fault concerns the target served since the onset."""
        _, served = self.calls_of("server", 0)
        return int(served["operation"].astype(str).str.contains(self.parameters["path"], regex=False).sum())

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


def said_by_consumers(e: RecordedEpisode) -> str:
    """Log lines and error texts of spans of the services that use the target."""
    app = load_app(str(e.view.context.app))
    users = app.consumers(e.target)
    spans = e.after(e.spans[e.spans["service"].isin(users)])
    return "\n".join([*(e.messages(user) for user in users), *spans["attributes"].astype(str)])


CONSUMERS = ("accounting", "fraud-detection")
