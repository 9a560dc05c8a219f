from __future__ import annotations

import pickle

import pytest

from faultset.core.errors import DataError, UsageError
from faultset.datasets.metrics.roles import COMBINATIONS, KINDS, ROLES, builtin_catalogue, parse_roles, role_of


@pytest.mark.parametrize(
    ("metric", "role"),
    [
        ("container_cpu_usage_seconds_total", "cpu"),
        ("container_cpu_cfs_throttled_periods_total", "throttling"),
        ("container_memory_working_set_bytes", "memory"),
        ("container_network_transmit_packets_dropped_total", "network"),
        ("container_network_tcp_usage_total", "network"),
        ("container_threads", "threads"),
        ("container_file_descriptors", "descriptors"),
        ("container_spec_memory_limit_bytes", "limits"),
        ("kube_pod_container_status_restarts_total", "restarts"),
        ('kube_pod_status_phase{phase="Pending"}', "state"),
        ("kube_deployment_status_replicas_available", "state"),
        ("process_resident_memory_bytes", "memory"),
        ("process_cpu_seconds_total", "cpu"),
        ("http_server_active_requests", "saturation"),
        ("http_server_request_duration_seconds_mean", "latency"),
        ("http_server_request_duration_seconds_rate", "traffic"),
        ("db_client_operation_duration_seconds_error_rate", "errors"),
        ("up", "state"),
        ("unheard_of_rate", "other"),
        ("unheard_of", "other"),
    ],
)
def test_metrics_have_the_role_one_expects(metric, role):
    assert role_of(metric) == role


def test_every_row_is_complete_and_no_metric_is_listed_twice():
    rows = builtin_catalogue().rows
    assert len({row.metric for row in rows}) == len(rows)
    for row in rows:
        assert row.role in ROLES
        assert row.kind in KINDS
        assert row.combine in COMBINATIONS
        assert row.unit
        assert row.meaning


def test_parts_of_a_histogram_serve_the_columns_made_of_them():
    catalogue = builtin_catalogue()
    family = "http_client_request_duration_seconds"
    assert catalogue.stored_roles(f"{family}_sum") == {"latency"}
    assert catalogue.stored_roles(f"{family}_count") == {"latency", "traffic", "errors"}
    assert catalogue.stored_roles(f"{family}_bucket") == frozenset()
    assert catalogue.stored_roles("unheard_of_bucket") == frozenset()
    assert catalogue.stored_roles("unheard_of_count") == {"other"}


def test_added_rows_come_first_and_travel_with_the_catalogue():
    row = {"source": "mine", "metric": "up*", "role": "saturation", "unit": "1", "kind": "gauge", "combine": "mean"}
    catalogue = pickle.loads(pickle.dumps(builtin_catalogue().extended([row])))
    assert catalogue.role_of("upstream") == "saturation"
    assert catalogue.role_of("up") == "state"
    assert builtin_catalogue().role_of("upstream") == "other"


def test_a_row_with_an_unknown_role_is_refused():
    row = {"source": "mine", "metric": "x", "role": "speed", "unit": "1", "kind": "gauge", "combine": "mean"}
    with pytest.raises(DataError, match='role "speed" must be one of cpu'):
        builtin_catalogue().extended([row])


def test_one_role_may_be_given_as_a_word():
    assert parse_roles("cpu") == {"cpu"}
    with pytest.raises(UsageError, match='unknown role "cqu"; did you mean "cpu"'):
        parse_roles(["cqu"])
