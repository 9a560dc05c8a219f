"""Where Kafka and Java are looked for, and what is said when they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.collector.runtime.stores.originals.kafka import installation
from faultset.collector.runtime.stores.originals.kafka.driver import OriginalKafkaDriver
from faultset.collector.runtime.stores.originals.kafka.installation import find_installation, installation_variables
from faultset.core.errors import PlatformError, UsageError


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KAFKA_HOME", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(installation, "find_program", lambda name: None)
    monkeypatch.setattr(installation, "_USUAL_HOME", tmp_path / "none")


def unpacked(folder: Path) -> Path:
    """Make what an unpacked Kafka looks like."""
    for path in ("libs/kafka_2.13-4.1.1.jar", "libs/kafka_2.13-4.1.1-test.jar", "bin/kafka-server-start.sh"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


def java(folder: Path) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return folder


def test_the_environment_names_kafka_and_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, jvm = unpacked(tmp_path / "kafka"), java(tmp_path / "jvm")
    monkeypatch.setenv("KAFKA_HOME", str(home))
    monkeypatch.setenv("JAVA_HOME", str(jvm))
    found = find_installation()
    assert found == (str(jvm / "bin" / "java"), home)
    assert found.version == "4.1.1"
    assert found.class_path == f"{home}/libs/*"
    assert OriginalKafkaDriver().version() == "kafka 4.1.1"
    assert not OriginalKafkaDriver().is_missing
    assert installation_variables() == {"KAFKA_HOME": str(home), "JAVA_HOME": str(jvm)}


def test_a_start_script_on_the_path_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = unpacked(tmp_path / "kafka")
    link = tmp_path / "kafka-server-start.sh"
    link.symlink_to(home / "bin" / "kafka-server-start.sh")
    programs = {"kafka-server-start.sh": str(link), "java": "/usr/bin/java"}
    monkeypatch.setattr(installation, "find_program", programs.get)
    assert find_installation() == ("/usr/bin/java", home)
    assert installation_variables() == {"KAFKA_HOME": str(home)}
    assert OriginalKafkaDriver().location() == str(home)


def test_what_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="neither KAFKA_HOME is set nor kafka-server-start"):
        find_installation()
    assert OriginalKafkaDriver().location() is None
    assert OriginalKafkaDriver().is_missing
    assert installation_variables() == {}
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(PlatformError, match=r"has no libs/kafka_\*\.jar; set KAFKA_HOME"):
        find_installation()
    monkeypatch.setenv("KAFKA_HOME", str(unpacked(tmp_path / "kafka")))
    with pytest.raises(PlatformError, match="there is no program java on the PATH and none in JAVA_HOME"):
        find_installation()


def test_a_missing_client_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the Python package aiokafka .* install faultset\[stores\]"):
        OriginalKafkaDriver().check()
