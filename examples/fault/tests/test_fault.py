from faultset.collector.testing import check_fault


def test_the_fault_keeps_all_promises():
    check_fault("missing-endpoints", "hotel")
