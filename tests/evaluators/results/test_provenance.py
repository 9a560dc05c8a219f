"""What answers depend on has a stable name."""

from __future__ import annotations

import dataclasses

from faultset.baselines.api.registry import get_baseline
from faultset.evaluators.execution.plan import build_runs
from faultset.evaluators.execution.settings import EvaluationSettings
from faultset.evaluators.results.provenance import read_parameters, settings_hash


def test_settings_have_a_stable_name():
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})


def test_parameters_are_the_defaults_that_a_baseline_is_built_with():
    found = read_parameters(get_baseline("autoencoder"))
    assert found == {"hidden": (16, 4, 16), "updates": 500}
    assert read_parameters(get_baseline("always-no")) == {}


def test_other_parameters_are_another_key():
    spec = get_baseline("pooled-pca")
    other = dataclasses.replace(spec, factory=lambda variance=0.5: spec.factory(variance=variance))
    runs = [build_runs([one], EvaluationSettings())[0][0] for one in (spec, other)]
    assert runs[0].settings != runs[1].settings
