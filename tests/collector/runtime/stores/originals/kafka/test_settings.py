"""Settings of a Kafka server."""

from __future__ import annotations

from pathlib import Path

from faultset.collector.runtime.stores.driver import Credentials
from faultset.collector.runtime.stores.originals.kafka.settings import (
    SaltedPassword,
    address_settings,
    limit_settings,
    properties,
    settings_of,
)


def test_the_server_listens_on_its_pods_address_only() -> None:
    settings = address_settings(Path("/data/log"), "127.5.0.1", 9092)
    assert settings["listeners"] == "CLIENTS://127.5.0.1:9092,CONTROLLER://127.5.0.1:9093"
    assert "127.5.0.1:9092" in settings["advertised.listeners"]
    assert settings["log.dirs"] == "/data/log"


def test_nobody_gets_in_without_a_password() -> None:
    settings = settings_of(Credentials(administrator="secret", application="other"))
    assert all(one.endswith(":SASL_PLAINTEXT") for one in settings["listener.security.protocol.map"].split(","))
    assert "other" not in properties(settings)


def test_the_applications_password_is_salted_before_a_command_line_names_it() -> None:
    text = SaltedPassword("word", b"salt").formatted("app")
    assert text.startswith("SCRAM-SHA-256=[name=app,iterations=4096,")
    assert "word," not in text
    assert 'salt="c2FsdA=="' in text


def test_a_password_may_hold_any_sign() -> None:
    text = properties(settings_of(Credentials(administrator='a"b', application="x")))
    assert r'password="a\\"b"' in text


def test_limits_are_the_servers_own() -> None:
    assert limit_settings(None, None) == {}
    assert limit_settings(2048, 3) == {
        "log.retention.bytes": str(2 * 2**20),
        "listener.name.clients.max.connections": "3",
    }
