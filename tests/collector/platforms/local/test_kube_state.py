"""Metrics of object states."""

from __future__ import annotations

from faultset.collector.platforms.local.routing import build_state_samples

SECOND = 1_000_000_000


def test_state_metrics_have_the_names_of_kube_state_metrics(bench, manifest):
    bench.apply(manifest.volume("geo"), manifest.claim("geo"), manifest.claiming("geo"), manifest.service("geo"))
    bench.end(bench.name("geo"), code=137, out_of_memory=True)
    found = {
        (one.metric, *one.labels.values()): (one.service, one.pod, one.container, one.kind, one.value)
        for one in build_state_samples(bench.store, bench.cluster.service_of)
    }
    pod = bench.name("geo")
    assert found["kube_deployment_spec_replicas", "geo"] == ("geo", None, None, "gauge", 1.0)
    assert found["kube_pod_status_phase", "Running"] == ("geo", pod, None, "gauge", 1.0)
    assert found["kube_pod_status_phase", "Pending"][-1] == 0.0
    assert found[("kube_pod_container_status_restarts_total",)] == ("geo", pod, "geo-main", "counter", 1.0)
    assert found["kube_pod_container_status_last_terminated_reason", "OOMKilled"][-1] == 1.0
    assert found["kube_endpoint_address", "geo", "true"][-1] == 1.0
    assert found["kube_persistentvolumeclaim_status_phase", "geo-pvc", "Bound"][-1] == 1.0
    assert found["kube_persistentvolume_status_phase", "geo-pv", "Released"][-1] == 0.0
