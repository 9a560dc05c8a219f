"""What each failure of a store, a callee or the registry looks like, with real processes."""

from __future__ import annotations

import signal

import pytest
from span_receiver import Receiver
from stage import Process, Stage

from faultset.collector.runtime.builds import LEAKS, WRONG_PORTS, draw_builds
from faultset.collector.runtime.stores.driver import AdminAction
from faultset.collector.runtime.stores.server import admin_command


def ended(stage: Stage, process: Process, what: str, timeout_s: float = 30.0) -> int:
    """Wait until a process has ended; return its exit code."""
    stage.wait(lambda: not process.alive, what, timeout_s)
    assert process.exit_code != 70, process.log
    return process.exit_code


def administer(stage: Stage, store: str, action: AdminAction) -> None:
    """Change something as a fault does, inside the store's pod."""
    service = stage.app.services[store]
    argv = admin_command("mongodb", action, port=service.port, password=service.auth == "password")
    assert ended(stage, stage.start(store, argv=argv), "the store command") == 0, stage.logs()


SEARCHING = (
    "consul", "frontend", "search", "geo", "rate", "profile", "reservation",
    "memcached-rate", "memcached-profile", "memcached-reserve",
    "mongodb-geo", "mongodb-rate", "mongodb-profile", "mongodb-reservation",
)  # fmt: skip


def test_revoked_rights_end_a_starting_service_with_exit_code_1(stage: Stage) -> None:
    stage.start_all("consul", "mongodb-geo")
    administer(stage, "mongodb-geo", "revoke-rights")
    geo = stage.start("geo")
    assert ended(stage, geo, "geo") == 1
    assert 'FTL cmd/geo/db.go:46 > not authorized on geo-db to execute command { count: "geo" }' in geo.log


def test_a_deleted_account_ends_a_starting_service_with_exit_code_2(stage: Stage) -> None:
    stage.start_all("consul", "mongodb-geo")
    administer(stage, "mongodb-geo", "remove-account")
    geo = stage.start("geo")
    assert ended(stage, geo, "geo") == 2
    text = "server returned error on SASL authentication step: Authentication failed."
    assert f"PNC cmd/geo/db.go:24 > {text}" in geo.log
    assert f"panic: {text}\n\ngoroutine " in geo.log


def test_changed_accounts_survive_a_restart_of_the_store(stage: Stage) -> None:
    store = stage.start_all("mongodb-geo")["mongodb-geo"]
    administer(stage, "mongodb-geo", "remove-account")
    store.end()
    stage.wait(lambda: not store.alive, "the store ends")
    stage.start_all("mongodb-geo")
    assert stage.redis("mongodb-geo", "ACL", "USERS").split() == ["default", "root"]


@pytest.mark.slow
def test_a_missing_registry_ends_a_starting_service_with_exit_code_1(stage: Stage) -> None:
    search = stage.start("search")
    assert ended(stage, search, "search") == 1
    assert "FTL cmd/search/main.go:92 > failed register: Put" in search.log
    assert "connect: connection refused" in search.log


def test_a_missing_cache_ends_a_service_at_the_next_request(stage: Stage, receiver: Receiver) -> None:
    processes = stage.start_all(*SEARCHING)
    assert stage.search()[0] == 200
    stage.end(processes["memcached-rate"], "memcached-rate")
    status, text = stage.search()
    assert (status, text) == (500, "rpc error: code = Unavailable desc = transport is closing\n")
    assert ended(stage, processes["rate"], "rate") == 2
    assert (
        "PNC services/rate/server.go:112 > Memmcached error while trying to get hotel [id: [" in processes["rate"].log
    )
    assert "connect: connection refused" in processes["rate"].log

    status, text = stage.search()
    address = f"{stage.addresses['rate']}:8084"
    dialled = f"dial tcp {address}: connect: connection refused"
    assert text == (
        f'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing {dialled}"\n'
    )
    assert " ERR " not in processes["frontend"].log + processes["search"].log
    stage.wait(lambda: sum(s.name == "/rate.Rate/GetRates" and s.error for s in receiver.spans) == 2, "failed spans")
    # each service sends its own spans when it likes
    stage.wait(lambda: sum(s.name == "HTTP GET /hotels" for s in receiver.spans) == 3, "the entry's spans")
    callers = {("search", "client"), ("search", "server"), ("frontend", "client")}
    stage.wait(lambda: callers <= {(s.service, s.kind) for s in receiver.spans if s.error}, "all callers' spans")
    failed = [span for span in receiver.spans if span.error]
    assert {(span.service, span.kind) for span in failed} == callers
    assert {span.attributes["response_code"] for span in failed} == {14}
    assert any(dialled in event for span in failed for event in span.events)
    root = [span for span in receiver.spans if span.name == "HTTP GET /hotels"][-1]
    assert (root.attributes["http.status_code"], root.error) == (500, False)


def test_an_unknown_name_is_told_by_the_caller(stage: Stage) -> None:
    processes = stage.start_all(*SEARCHING)
    stage.write_hosts({name: address for name, address in stage.addresses.items() if name != "profile"})
    status, text = stage.search()
    assert status == 500
    assert "dial tcp: lookup profile: no such host" in text
    assert "ERR services/frontend/server.go:93 > SearchHandler GetProfiles failed" in processes["frontend"].log


def test_profile_answers_and_caches_an_empty_record_when_its_database_refuses(stage: Stage) -> None:
    processes = stage.start_all(*SEARCHING)
    stage.redis("mongodb-profile", "ACL", "SETUSER", "app", "-@all")
    status, text = stage.search()
    assert (status, '"id": null' in text) == (200, True)
    assert "ERR services/profile/server.go:117 > Failed get hotels data: not authorized on" in processes["profile"].log
    stage.redis("mongodb-profile", "ACL", "SETUSER", "app", "+@all")
    stage.wait(lambda: stage.redis("memcached-profile", "GET", "36") == "{}", "the cache is poisoned")
    assert '"id": null' in stage.search()[1]
    stage.redis("memcached-profile", "FLUSHALL")
    assert '"id": "36"' in stage.search()[1]


def test_rate_ends_when_its_database_refuses_and_the_cache_is_cold(stage: Stage) -> None:
    processes = stage.start_all(*SEARCHING)
    stage.redis("mongodb-rate", "ACL", "SETUSER", "admin", "-@all")
    assert stage.search()[0] == 500
    assert ended(stage, processes["rate"], "rate") == 2
    assert "Tried to find hotelId [" in processes["rate"].log
    assert 'but got errornot authorized on rate-db to execute command { find: "inventory" }' in processes["rate"].log


def test_another_services_program_runs_as_that_service(stage: Stage, receiver: Receiver) -> None:
    stage.start_all("consul", "mongodb-geo")
    process = stage.start("profile", argv=["faultset-service", "geo"])
    stage.wait(lambda: "Successfully registered" in process.log, "registration")
    assert "name: srv-geo" in process.log
    assert f"{stage.addresses['profile']}:8083" in process.log
    assert not stage.listens("profile")


def test_a_store_that_refuses_a_password_ends_its_clients(stage: Stage) -> None:
    stage.start_all("consul", "mongodb-user")
    administer(stage, "mongodb-user", "require-password")
    user = stage.start("user")
    assert ended(stage, user, "user") == 2
    assert "Authentication failed." in user.log


def test_an_address_in_use_ends_a_service_with_exit_code_1(stage: Stage) -> None:
    stage.start_all("consul", "mongodb-geo", "geo")
    second = stage.start("geo")
    assert ended(stage, second, "the second geo") == 1


@pytest.mark.slow
def test_an_unreachable_database_is_told_after_ten_silent_seconds(stage: Stage) -> None:
    stage.start_all("consul", "mongodb-geo")
    defective = stage.start("geo", build=draw_builds(0).tag_with(WRONG_PORTS[0]))
    assert ended(stage, defective, "the bad build") == 2
    assert "Read database URL: mongodb-geo:27017" in defective.log
    assert "> no reachable servers" in defective.log


@pytest.mark.slow
def test_a_leaking_build_grows(stage: Stage) -> None:
    def resident_mib() -> float:
        with open(f"/proc/{search.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20

    stage.start_all("consul", "frontend")
    search = stage.start("search", build=draw_builds(0).tag_with(LEAKS[-1]))
    stage.wait(lambda: stage.listens("search"), "search listens")
    before = resident_mib()
    stage.search()
    stage.wait(lambda: resident_mib() > before + 20, "20 MiB more")


def test_a_stopped_callee_hangs_its_callers_until_the_client_gives_up(stage: Stage, receiver: Receiver) -> None:
    processes = stage.start_all("consul", "mongodb-user", "user", "frontend")
    processes["user"].end(signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        stage.log_in(0.5)
    stage.wait(lambda: len(receiver.spans) >= 2, "the spans of the given-up request")
    by_kind = {span.kind: span for span in receiver.spans}
    assert by_kind["client"].events == ("context canceled",)
    assert by_kind["server"].attributes["http.status_code"] == 499
    processes["user"].end(signal.SIGCONT)
    assert stage.log_in()[0] == 200


def test_requests_are_served_while_nobody_takes_the_spans(stage: Stage) -> None:
    stage.telemetry = "http://127.77.0.1:9"
    processes = stage.start_all("consul", "mongodb-user", "user", "frontend")
    for _ in range(5):
        assert stage.log_in()[0] == 200
    processes["user"].end(signal.SIGTERM)
    assert ended(stage, processes["user"], "user") == 0
    assert "Traceback" not in processes["user"].log
