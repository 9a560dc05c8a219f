"""What faults of stores, accounts, settings and flags show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pandas as pd
import pytest

from faultset.collector.apps import load_app
from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import CONSUMERS, RecordedEpisode, assert_untouched, said_by_consumers

pytestmark = pytest.mark.slow


def assert_crash_loop(e: RecordedEpisode, service: str, exit_code: int, line: str) -> None:
    assert line in e.messages(service)
    assert exit_code in e.exit_codes(service)
    assert e.most_restarts(service) >= 2
    assert "BackOff" in e.reasons(service)
    assert any(c.get("reason") == "CrashLoopBackOff" for c in e.containers(service))


def assert_program_cannot_start(e: RecordedEpisode, service: str, exit_code: int, line: str) -> None:
    """It ends each time, or keeps trying where the original's programs do."""
    if not e.retries_logins:
        assert_crash_loop(e, service, exit_code, line)
        return
    assert e.messages(service).count(line) >= 5
    assert e.most_restarts(service) == 0
    assert "Started" in e.reasons(service)


def login_refusal(e: RecordedEpisode, database: str) -> tuple[int, str]:
    """How a program ends whose password a database refuses, and what it says."""
    is_postgresql = "postgresql" in e.app.services[database].program
    return (1, "password authentication failed") if is_postgresql else (2, "Authentication failed")


def test_what_revoke_auth_shows(recorded: Recorded) -> None:
    for e in recorded("revoke-auth"):
        if "postgresql" in e.app.services[e.target].program:
            assert "permission denied for table" in e.messages(e.consumers[0])
        else:
            assert_program_cannot_start(e, e.consumers[0], 1, "not authorized on")
            assert "NOPERM" in e.messages(e.consumers[0])
        assert e.most_restarts(e.target) == 0


def test_what_user_unregistered_shows(recorded: Recorded) -> None:
    for e in recorded("user-unregistered"):
        assert_program_cannot_start(e, e.consumers[0], *login_refusal(e, e.target))


def test_what_auth_missing_shows(recorded: Recorded) -> None:
    for e in recorded("auth-missing"):
        assert_program_cannot_start(e, e.consumers[0], *login_refusal(e, e.target))


def test_what_wrong_secret_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-secret"):
        (database,) = [name for name in e.app.stores(e.target) if e.app.services[name].kind == "database"]
        assert_program_cannot_start(e, e.target, *login_refusal(e, database))
        assert "ScalingReplicaSet" in e.reasons(e.target)
        assert e.errors_at_client() > 0 or not e.app.services[e.target].port


def test_what_read_only_account_shows(recorded: Recorded) -> None:
    for e in recorded("read-only-account"):
        assert_untouched(e)
        assert any(sign in said_by_consumers(e) for sign in ("NOPERM", "not authorized", "permission denied"))


def test_what_consumer_stopped_shows(recorded: Recorded) -> None:
    for e in recorded("consumer-stopped"):
        assert_untouched(e)
        assert any("not authorized to access this topic" in e.messages(service) for service in CONSUMERS)


def waits_of_consumers(e: RecordedEpisode) -> tuple[float, float]:
    """The 95th percentile in seconds of what requests to the services that use the target took, before and after."""
    users = load_app(str(e.view.context.app)).consumers(e.target)
    mine = e.spans[e.spans["service"].isin(users) & (e.spans["kind"] == "server")]
    parts = e.before(mine)["duration_ns"], e.after(mine, 5)["duration_ns"]
    return float(parts[0].quantile(0.95)) / 1e9, float(parts[1].quantile(0.95)) / 1e9


def lag_grows(e: RecordedEpisode, service: str) -> bool:
    before, after = e.series(service, "kafka_consumer_group_lag")
    return bool(after.max() > before.max())


def test_what_volume_full_shows(recorded: Recorded) -> None:
    for e in recorded("volume-full"):
        assert_untouched(e)
        assert "MISCONF" in said_by_consumers(e) or "File too large" in e.messages(e.target)


def test_what_store_memory_limit_shows(recorded: Recorded) -> None:
    for e in recorded("store-memory-limit"):
        assert e.most_restarts(e.target) == 0
        assert "command not allowed when used memory > 'maxmemory'" in said_by_consumers(e)


def test_what_connection_limit_shows(recorded: Recorded) -> None:
    for e in recorded("connection-limit"):
        assert e.most_restarts(e.target) == 0
        assert e.errors_at_client() > 0 or waits_of_consumers(e)[1] > 0.2


def test_what_locked_store_shows(recorded: Recorded) -> None:
    for e in recorded("locked-store"):
        assert_untouched(e)
        before, after = waits_of_consumers(e)
        assert after > max(0.2, 2 * before)


def test_what_heavy_query_shows(recorded: Recorded) -> None:
    for e in recorded("heavy-query"):
        assert_untouched(e)
        before, after = waits_of_consumers(e)
        assert after > max(0.1, 2 * before)
        used = [part.mean() for part in e.series(e.target, "container_cpu_usage_seconds_total")]
        assert used[1] > 3 * used[0]


def test_what_poison_message_shows(recorded: Recorded) -> None:
    for e in recorded("poison-message"):
        assert_untouched(e)
        assert all("cannot be read: its body is not JSON" in e.messages(service) for service in CONSUMERS)
        assert any(lag_grows(e, service) for service in CONSUMERS)


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


def error_shares(e: RecordedEpisode, service: str, kind: str, delay_s: float = 10.0) -> tuple[float, float]:
    """The shares of a service's spans that end in an error, before and after the onset."""
    mine = e.spans[(e.spans["service"] == service) & (e.spans["kind"] == kind)]
    parts = e.before(mine), e.after(mine, delay_s)
    assert all(len(part) for part in parts)
    return float((parts[0]["status"] == "error").mean()), float((parts[1]["status"] == "error").mean())


def median_ms(e: RecordedEpisode, service: str) -> tuple[float, float]:
    """The median length of a service's server spans, before and after the onset."""
    mine = e.spans[(e.spans["service"] == service) & (e.spans["kind"] == "server")]
    return e.before(mine)["duration_ns"].median() / 1e6, e.after(mine, 10.0)["duration_ns"].median() / 1e6


def requests_each_second(e: RecordedEpisode, service: str) -> tuple[float, float]:
    """How many requests a service serves a second, before and after the onset."""
    mine = e.spans[(e.spans["service"] == service) & (e.spans["kind"] == "server")]
    rates = []
    for part in (e.before(mine), e.after(mine, 10.0)):
        length: pd.Timedelta = part["time"].max() - part["time"].min()
        rates.append(len(part) / length.total_seconds())
    return rates[0], rates[1]


def test_what_ad_failure_shows(recorded: Recorded) -> None:
    for e in recorded("ad-failure"):
        before, after = error_shares(e, "ad", "server")
        assert before == 0
        assert after < 0.3
        assert after > 0 or e.label.verdict == "silent", "few calls, of which a small share fails"


def test_what_ad_high_cpu_shows(recorded: Recorded) -> None:
    for e in recorded("ad-high-cpu"):
        before, after = e.series("ad", "container_cpu_usage_seconds_total")
        assert after.median() > 3 * before.median()


def test_what_ad_manual_gc_shows(recorded: Recorded) -> None:
    for e in recorded("ad-manual-gc"):
        before, after = median_ms(e, "ad")
        hanging = e.after(e.requests, 10.0, "scheduled")["outcome"].isin(["unfinished", "timeout"])
        assert after > 2 * before or (pd.isna(after) and hanging.any()), "on a slow machine no call ends any more"


def test_what_cart_failure_shows(recorded: Recorded) -> None:
    for e in recorded("cart-failure"):
        before, after = error_shares(e, "cart", "server")
        assert before == 0
        assert after > 0


def test_what_flood_homepage_shows(recorded: Recorded) -> None:
    for e in recorded("flood-homepage"):
        before, after = requests_each_second(e, "frontend")
        assert after > 1.5 * before


def test_what_image_slow_load_shows(recorded: Recorded) -> None:
    for e in recorded("image-slow-load"):
        mine = e.spans[e.spans["service"] == "frontend-proxy"]
        assert e.before(mine)["duration_ns"].max() < 5e9
        assert e.after(mine)["duration_ns"].max() >= 5e9


def test_what_kafka_queue_problems_shows(recorded: Recorded) -> None:
    for e in recorded("kafka-queue-problems"):
        before, after = e.series("fraud-detection", "kafka_consumer_group_lag")
        assert after.max() > before.max() + 50


def test_what_payment_failure_shows(recorded: Recorded) -> None:
    for e in recorded("payment-failure"):
        before, after = error_shares(e, "payment", "server")
        assert before == 0
        assert after > 0


def test_what_payment_unreachable_shows(recorded: Recorded) -> None:
    for e in recorded("payment-unreachable"):
        before, after = error_shares(e, "checkout", "client")
        assert before == 0
        assert after > 0
        served = e.spans[(e.spans["service"] == "payment") & (e.spans["kind"] == "server")]
        assert e.after(served, 10.0).empty, "nobody reaches the service, which is well"


def test_what_product_catalog_failure_shows(recorded: Recorded) -> None:
    for e in recorded("product-catalog-failure"):
        before, after = error_shares(e, "product-catalog", "server")
        assert before == 0
        assert 0 < after < 0.9, "one product of several fails"


def test_what_recommendation_cache_failure_shows(recorded: Recorded) -> None:
    for e in recorded("recommendation-cache-failure"):
        before, after = e.series("recommendation", "container_memory_working_set_bytes")
        since_s = (after.index[-1] - e.onset).total_seconds()
        assert after.iloc[-5:].mean() > (1 + 0.0007 * since_s) * before.max(), "it grows with every miss"
