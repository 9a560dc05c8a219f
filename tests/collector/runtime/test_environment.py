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


def test_hosts_and_limits_of_calls_are_set_by_variables() -> None:
    given = environment({"PRODUCT_CATALOG_HOST": "catalog-old", "RPC_TIMEOUT_MS": "6.5", "RPC_RETRIES": "3"})
    assert (given.find_host_override("product-catalog"), given.find_host_override("cart")) == ("catalog-old", None)
    assert (given.call_timeout_s, given.call_retries) == (0.0065, 3)


def test_a_limit_that_is_no_number_limits_nothing() -> None:
    given = environment({"RPC_TIMEOUT_MS": "soon", "RPC_RETRIES": "-1"})
    assert (given.call_timeout_s, given.call_retries) == (None, 0)
