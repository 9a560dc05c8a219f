"""What faults of settings show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded

pytestmark = pytest.mark.slow


def test_what_wrong_environment_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-environment"):
        assert e.most_restarts(e.target) >= 1
        assert "cannot assign requested address" in e.messages(e.target)
        assert e.calls_of("server")[1].empty
        assert e.errors_at_client() > 0


def test_what_wrong_host_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-host"):
        assert e.most_restarts(e.target) == 0
        (host,) = e.parameters["variables"].values()
        calls = e.after(e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")], 7)
        if e.spans_tell_outcome:
            assert calls["attributes"].str.contains(host).any(), "its calls say which name was not found"
        else:
            assert f"Failed to connect to {e.parameters['callee']}" in e.messages(e.target)
        assert e.errors_at_client() > 0


def test_what_retry_storm_shows(recorded: Recorded) -> None:
    for e in recorded("retry-storm"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")]
        callees = e.app.services[e.target].calls
        if not calls["peer_service"].isin(callees).any():
            # its calls have no spans of their own, what they ask for has
            requests = e.spans.loc[(e.spans["service"] == e.target) & (e.spans["kind"] == "server"), "trace_id"]
            served = e.spans[e.spans["service"].isin(callees) & (e.spans["kind"] == "server")]
            calls = served[served["trace_id"].isin(requests)]
        before, after = e.before(calls), e.after(calls, 7)
        per_request = [len(part) / max(1, part["trace_id"].nunique()) for part in (before, after)]
        # a timeout above what calls usually take is met by few of them
        factor = 1.1 if e.parameters["share_of_usual"] < 1 else 1.02
        assert per_request[1] > factor * per_request[0], "a request makes more calls than before"


def test_what_short_timeout_shows(recorded: Recorded) -> None:
    for e in recorded("short-timeout"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")]
        before, after = e.before(calls), e.after(calls, 7)
        limit_ns = 1e6 * float(e.parameters["variables"]["RPC_TIMEOUT_MS"])
        if e.spans_tell_outcome:
            assert e.is_error(after).mean() > e.is_error(before).mean() + 0.02
            given_up = after[e.is_error(after)]
            assert given_up["duration_ns"].median() < 3 * limit_ns + 2e7, "the caller does not wait longer"
        assert e.errors_at_client() > 0


def test_what_wrong_config_key_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-config-key"):
        waiting = {c["reason"] for c in e.containers(e.target) if c["state"] == "waiting"}
        if e.parameters["use"] == "variable":
            assert "CreateContainerConfigError" in waiting
            about = e.events[(e.events["service"] == e.target) & (e.events["reason"] == "Failed")]
            assert about["message"].str.contains(f"couldn't find key {e.parameters['key']}").any()
        maps = e.after(e.view.objects())
        texts = maps.loc[maps["name"] == e.parameters["config_map"], "data"].astype(str)
        assert texts.str.contains(e.parameters["renamed"], regex=False).any()
        assert e.errors_at_client() > 0
