"""Objects as a cluster stores them and as the records show them."""

from __future__ import annotations

from faultset.collector.platforms.kubernetes.api.objects import Objects


def test_volumes_carry_the_namespace_in_the_cluster_and_not_in_the_records() -> None:
    objects = Objects(None, "hotel-1", own_volumes=True)  # type: ignore[arg-type]
    volume = {"kind": "PersistentVolume", "metadata": {"name": "geo-pv"}, "spec": {"storageClassName": "geo-storage"}}
    stored = objects.stored(volume)
    assert (stored["metadata"]["name"], stored["spec"]["storageClassName"]) == ("hotel-1-geo-pv", "hotel-1-geo-storage")
    assert objects.shown(stored) == volume
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "geo-pvc"}, "spec": {"volumeName": "geo-pv"}}
    assert objects.stored(claim)["spec"]["volumeName"] == "hotel-1-geo-pv"
    assert objects.shown(objects.stored(claim)) == claim
