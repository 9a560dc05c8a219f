"""Which keys of ConfigMaps a service cannot do without."""

from __future__ import annotations

from faultset.collector.faults.settings import NeededKey, list_configured_services, list_needed_keys, sharing_services
from faultset.collector.runtime.app_code import read_app
from tests.collector.spec.test_containers import SHOP

MORE = """
  other:
    kind: logic
    container: other
    program: [faultset-service, other]
    port: 8081
    environment: {HINT: {config: settings, key: none, optional: true}}
    operations: {/o: {steps: [{respond: {json: 1}}]}}
requests:"""


def test_keys_are_needed_that_containers_name_or_steps_read() -> None:
    app = read_app(SHOP.replace("\nrequests:", MORE), "shop.yaml")
    assert list_needed_keys(app, "web") == (
        NeededKey("settings", "currency", "variable"),
        NeededKey("settings", "currency", "group"),
        NeededKey("settings", "offers.json", "file"),
    )
    assert list_configured_services(app) == ("web",)
    assert sharing_services(app, "web") == ("other",)


def test_a_folders_file_is_needed_when_a_step_reads_it() -> None:
    mounted = "/etc/shop: {config: settings, items: {offers.json: today.json}}"
    text = SHOP.replace(mounted, "/etc/shop: {config: settings}").replace("shop/today.json", "shop/offers.json")
    assert list_needed_keys(read_app(text, "shop.yaml"), "web")[-1] == NeededKey("settings", "offers.json", "folder")
