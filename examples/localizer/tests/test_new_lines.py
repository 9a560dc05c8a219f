from faultset.baselines.testing import check_baseline


def test_it_keeps_to_the_contract():
    check_baseline("new-lines")
