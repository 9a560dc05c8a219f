from faultset.collector.testing import check_fault


def test_the_fault_meets_the_contract():
    check_fault("missing-endpoints", "hotel")
