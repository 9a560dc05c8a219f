"""Settings from the environment."""

from __future__ import annotations

from faultset.collector.runtime.environment import environment


def test_the_environment_is_read_when_asked() -> None:
    given = environment({"POD_IP": "127.1.2.3", "POD_NAME": "geo-1", "FAULTSET_BUILD": "1.1.0"})
    assert (given.address, given.pod, given.build, given.spec) == (
        "127.1.2.3",
        "geo-1",
        "1.1.0",
        "/etc/faultset/app.yaml",
    )
    assert environment({}).listen == "127.0.0.1"
