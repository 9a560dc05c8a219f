from __future__ import annotations

from faultset.core.suggestions import suggest


def test_suggestions_name_what_is_close_or_all_when_few():
    assert suggest("Hotle", ["hotel", "social"]) == 'did you mean "hotel"?'
    assert suggest("zzz", ["hotel", "social"]) == "choose one of hotel, social"
    assert suggest("zzz", []) == "there are none to choose from"
    assert suggest("zzz", [f"name-{number:02}" for number in range(20)]).endswith("name-11 and 8 more")
