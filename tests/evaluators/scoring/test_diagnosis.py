"""Diagnosis scores against vectors computed by hand."""

from __future__ import annotations

import math

import pytest

from faultset.evaluators.scoring.diagnosis import macro_f1

CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


def test_macro_f1_counts_every_class_the_same():
    assert macro_f1(["a", "a", "a", None], [{"a"}, {"a"}, {"b"}, {"b"}]) == pytest.approx(0.4)
    assert macro_f1(["a", "b"], [{"a"}, {"b"}]) == 1.0
    assert math.isnan(macro_f1([], []))
    with pytest.raises(ValueError, match="answers for"):
        macro_f1(["a"], [])


def test_one_of_several_classes_is_found_and_the_others_are_missed():
    assert macro_f1(["a", "b"], [{"a", "b"}, {"b"}]) == pytest.approx((1.0 + 2 / 3) / 2)
    assert macro_f1(["c"], [{"a", "b"}]) == 0.0
