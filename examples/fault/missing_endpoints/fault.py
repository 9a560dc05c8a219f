"""A Service without endpoints: it selects pods that do not exist."""

from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import list_networked_services


def selects_wrong_pods(platform, target, parameters, before):
    """Describe the wrong selector, or return None."""
    selector = platform.get("Service", target)["spec"]["selector"]
    return f"Service {target} selects {selector}" if parameters["label"] in selector.values() else None


@fault(
    "missing-endpoints",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=list_networked_services,
    check=selects_wrong_pods,
    root_cause_kind="Service",
)
def missing_endpoints(platform, target, rng):
    """Select pods by a label that no pod has."""
    label = f"{target}-{rng.bytes(2).hex()}"
    platform.patch("Service", target, {"spec": {"selector": {platform.app.label_key: label}}})
    return {"label": label}
