"""Status codes of calls."""

from __future__ import annotations

from faultset.collector.runtime.http.status import Code, RpcError, http_status, response_class


def test_codes_have_grpcs_texts_classes_and_a_status() -> None:
    assert str(RpcError(Code.UNAVAILABLE, "gone")) == "rpc error: code = Unavailable desc = gone"
    assert [response_class(code) for code in (Code.OK, Code.UNKNOWN, Code.CANCELED, Code.UNAVAILABLE)] == [
        "2xx",
        "0xx",
        "4xx",
        "5xx",
    ]
    assert http_status(Code.UNIMPLEMENTED) == 501
