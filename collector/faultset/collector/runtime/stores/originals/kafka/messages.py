"""Requests about accounts that the library aiokafka does not have."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_SCRAM_SHA_256 = 1
_Answer: Any = Response
_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


class _DescribedAccounts(_Answer):
    API_KEY = 50
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", _TEXT),
        (
            "results",
            CompactArray(
                ("user", _TEXT),
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("credential_infos", CompactArray(("mechanism", Int8), ("iterations", Int32), _TAGS)),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _DescribeAccountsV0(RequestStruct):
    API_KEY = 50
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _DescribedAccounts
    SCHEMA = Schema(("users", CompactArray(("name", _TEXT), _TAGS)), _TAGS)


class DescribeAccounts(Request[_DescribeAccountsV0]):
    """Ask which of several accounts have a password."""

    API_KEY = 50

    def __init__(self, *accounts: str):
        self._accounts = accounts

    def build(self, request_struct_class: Any) -> Any:
        """Return the request for one version of the protocol."""
        return request_struct_class([(name, {}) for name in self._accounts], {})


class _AlteredAccounts(_Answer):
    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("results", CompactArray(("user", _TEXT), ("error_code", Int16), ("error_message", _TEXT), _TAGS)),
        _TAGS,
    )


class _AlterAccountsV0(RequestStruct):
    API_KEY = 51
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _AlteredAccounts
    SCHEMA = Schema(
        ("deletions", CompactArray(("name", _TEXT), ("mechanism", Int8), _TAGS)),
        (
            "upsertions",
            CompactArray(
                ("name", _TEXT),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class RemoveAccount(Request[_AlterAccountsV0]):
    """Remove an account's password, and so the account."""

    API_KEY = 51

    def __init__(self, account: str):
        self._account = account

    def build(self, request_struct_class: Any) -> Any:
        """Return the request for one version of the protocol."""
        return request_struct_class([(self._account, _SCRAM_SHA_256, {})], [], {})


class SetPassword(Request[_AlterAccountsV0]):
    """Give an account a password, whether there is one or not."""

    API_KEY = 51

    def __init__(self, account: str, *, iterations: int, salt: bytes, hashed: bytes):
        self._upsertion = (account, _SCRAM_SHA_256, iterations, salt, hashed, {})

    def build(self, request_struct_class: Any) -> Any:
        """Return the request for one version of the protocol."""
        return request_struct_class([], [self._upsertion], {})
