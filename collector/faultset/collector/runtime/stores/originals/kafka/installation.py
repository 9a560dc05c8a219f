"""Where Apache Kafka and Java are installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from faultset.collector.runtime.stores.originals.driver import find_program
from faultset.core.errors import PlatformError

_START_SCRIPTS = ("kafka-server-start.sh", "kafka-server-start")
_USUAL_HOME = Path("/opt/kafka")
_SERVER_JARS = "kafka_*.jar"


class KafkaInstallation(NamedTuple):
    """Path of the program `java`, and the folder in which Kafka's `libs` are."""

    java: str
    home: Path

    @property
    def version(self) -> str:
        """Return the version, which is in the name of the server's archive: `kafka_2.13-4.1.1.jar`."""
        (first, *_) = _server_jars(self.home)
        return first.stem.partition("-")[2]

    @property
    def class_path(self) -> str:
        """Return where Java finds the server's classes."""
        return str(self.home / "libs" / "*")


def find_installation() -> KafkaInstallation:
    """Return what is installed; raise PlatformError when Kafka or Java is missing."""
    home = find_home()
    if home is None:
        raise PlatformError(
            "--stores original needs Apache Kafka, but neither KAFKA_HOME is set nor kafka-server-start.sh is on the "
            "PATH; unpack Kafka and set KAFKA_HOME to its folder, or name other kinds with --stores"
        )
    if not _server_jars(home):
        raise PlatformError(
            f"--stores original needs Apache Kafka, but {home} has no libs/{_SERVER_JARS}; set KAFKA_HOME to the "
            "folder of an unpacked Kafka, or name other kinds with --stores"
        )
    java = find_java()
    if java is None:
        raise PlatformError(
            "--stores original needs Java for kafka, but there is no program java on the PATH and none in JAVA_HOME; "
            "install a Java runtime of version 17 or later, or name other kinds with --stores"
        )
    return KafkaInstallation(java, home)


def find_home() -> Path | None:
    """Return the folder of Kafka that the environment names, or that a start script on the PATH belongs to."""
    named = os.environ.get("KAFKA_HOME")
    if named:
        return Path(named)
    for script in _START_SCRIPTS:
        found = find_program(script)
        if found is not None and (home := Path(found).resolve().parent.parent).joinpath("libs").is_dir():
            return home
    return _USUAL_HOME if _server_jars(_USUAL_HOME) else None


def find_java() -> str | None:
    """Return the path of `java`: that of JAVA_HOME, or the one on the PATH."""
    named = os.environ.get("JAVA_HOME")
    if named and os.access(own := Path(named) / "bin" / "java", os.X_OK):
        return str(own)
    return find_program("java")


def installation_variables() -> dict[str, str]:
    """Return the variables by which a process with another PATH finds the same Kafka and the same Java."""
    home = find_home()
    found = {} if home is None else {"KAFKA_HOME": str(home.absolute())}
    return found | {name: os.environ[name] for name in ("JAVA_HOME",) if found and name in os.environ}


def _server_jars(home: Path) -> list[Path]:
    """Return the archives of the server, without those of its sources and tests."""
    found = (home / "libs").glob(_SERVER_JARS)
    return sorted(jar for jar in found if jar.stem.count("-") == 1)
