"""Settings of a Kafka server of one node: small, quick to start, and with accounts."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path

from faultset.collector.runtime.stores.driver import Credentials

ADMINISTRATOR = "root"
MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096
"""How often a password is hashed, the fewest that Kafka takes."""
_CLIENTS, _CONTROLLER = "CLIENTS", "CONTROLLER"
_CONTROLLER_PORT = 9093
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": _CONTROLLER,
    "inter.broker.listener.name": _CLIENTS,
    "listener.security.protocol.map": f"{_CLIENTS}:SASL_PLAINTEXT,{_CONTROLLER}:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": "PLAIN",
    f"listener.name.{_CONTROLLER.lower()}.sasl.enabled.mechanisms": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMINISTRATOR}",
    "allow.everyone.if.no.acl.found": "true",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.segment.bytes": "16777216",
    "controller.quorum.election.timeout.ms": "100",
}
_LOG_LEVELS = dict.fromkeys(("org.apache.kafka.common.config", "kafka.server.KafkaConfig"), "WARN")
"""Loggers that say less than the others: they print hundreds of lines of settings at each start."""
_LINE = "[%d] %p %m (%c)%n"


def address_settings(folder: Path, address: str, port: int) -> dict[str, str]:
    """Return the settings that say where the server listens, on one address only, and where its files are."""
    return {
        "listeners": f"{_CLIENTS}://{address}:{port},{_CONTROLLER}://{address}:{_CONTROLLER_PORT}",
        "advertised.listeners": f"{_CLIENTS}://{address}:{port}",
        "controller.quorum.voters": f"1@{address}:{_CONTROLLER_PORT}",
        "log.dirs": str(folder),
    }


def limit_settings(max_memory_kib: int | None, max_clients: int | None) -> dict[str, str]:
    """Return the settings of limits: what a topic may keep, and how many connections there may be."""
    found: dict[str, str] = {}
    if max_memory_kib is not None:
        found["log.retention.bytes"] = str(max_memory_kib * 1024)
    if max_clients is not None:
        found[f"listener.name.{_CLIENTS.lower()}.max.connections"] = str(max_clients)
    return found


def settings_of(credentials: Credentials) -> dict[str, str]:
    """Return all settings but those of addresses and limits; the administrator's password is among them."""
    user, password = _jaas(ADMINISTRATOR), _jaas(credentials.administrator)
    login = f"required username={user} password={password}"
    security = "org.apache.kafka.common.security"
    return {
        **_SETTINGS,
        f"listener.name.{_CLIENTS.lower()}.{MECHANISM.lower()}.sasl.jaas.config": (
            f"{security}.scram.ScramLoginModule {login};"
        ),
        f"listener.name.{_CONTROLLER.lower()}.plain.sasl.jaas.config": (
            f"{security}.plain.PlainLoginModule {login} user_{ADMINISTRATOR}={password};"
        ),
    }


def properties(settings: Mapping[str, str]) -> str:
    r"""Return settings as the text of a file of properties.

    >>> properties({"a": "b\\c"})
    'a=b\\\\c\n'
    """
    escaped = {name: value.replace("\\", "\\\\") for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


def log_settings() -> dict[str, str]:
    """Return the files that let the server log to its output: that of Kafka 4, and that of earlier versions."""
    second = {
        "status": "ERROR",
        "appender.console.type": "Console",
        "appender.console.name": "STDOUT",
        "appender.console.layout.type": "PatternLayout",
        "appender.console.layout.pattern": _LINE,
        "rootLogger.level": "INFO",
        "rootLogger.appenderRef.console.ref": "STDOUT",
    }
    first = {
        "log4j.rootLogger": "INFO, stdout",
        "log4j.appender.stdout": "org.apache.log4j.ConsoleAppender",
        "log4j.appender.stdout.layout": "org.apache.log4j.PatternLayout",
        "log4j.appender.stdout.layout.ConversionPattern": _LINE,
    }
    for number, (name, level) in enumerate(_LOG_LEVELS.items()):
        second |= {f"logger.l{number}.name": name, f"logger.l{number}.level": level}
        first[f"log4j.logger.{name}"] = level
    return {"log4j2.properties": properties(second), "log4j.properties": properties(first)}


class SaltedPassword:
    """A password as Kafka keeps it."""

    def __init__(self, password: str, salt: bytes | None = None):
        self.salt = secrets.token_bytes(16) if salt is None else salt
        self.hash = hashlib.pbkdf2_hmac("sha256", password.encode(), self.salt, ITERATIONS)

    def formatted(self, account: str) -> str:
        """Return the account as `kafka-storage format --add-scram` takes it, which holds no password."""
        salt, hashed = (base64.b64encode(one).decode() for one in (self.salt, self.hash))
        return f'{MECHANISM}=[name={account},iterations={ITERATIONS},salt="{salt}",saltedpassword="{hashed}"]'


def _jaas(text: str) -> str:
    r"""Return a text as it stands in a login configuration.

    >>> _jaas('a"b')
    '"a\\"b"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
