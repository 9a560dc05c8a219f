from tests.datasets.conftest import fault_label, log, sample, write_episode  # noqa: F401  fixtures
