from faultset.baselines.testing import check_baseline


def test_it_meets_the_contract():
    check_baseline("new-lines")
