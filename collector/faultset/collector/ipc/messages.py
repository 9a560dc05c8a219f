"""Messages between processes: dataclasses that are checked when they arrive."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from faultset.core.errors import PlatformError

AnswerT = TypeVar("AnswerT")
ValueT = TypeVar("ValueT")
_TYPES: dict[str, type[Message]] = {}


class Message:
    """Base of all messages; a subclass is a frozen dataclass and is known by its name.

    Its fields are checked strictly when it is decoded, and unknown ones are refused.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _TYPES[f"{cls.__module__}.{cls.__qualname__}"] = cls


class Request(Message, Generic[AnswerT]):
    """A message that is answered; the type argument says with what."""

    __slots__ = ()

    @classmethod
    def answer_type(cls) -> Any:
        """Return the type of the answer."""
        return next(get_args(base)[0] for base in cls.__orig_bases__ if get_args(base))  # type: ignore[attr-defined]


class InvalidMessage(PlatformError):
    """What has arrived is not the message that was expected."""


def message_types() -> tuple[type[Message], ...]:
    """Return every type of message that has been imported so far."""
    return tuple(kind for kind in _TYPES.values() if kind is not Request)


def encode(message: Message) -> bytes:
    """Return a message as one line of JSON without its line end."""
    return encode_value(type(message), message)


def decode(kind: type[ValueT], data: bytes | str) -> ValueT:
    """Return the message of a type that `encode` has made into JSON; raise InvalidMessage if it is none."""
    return decode_value(kind, data)


def encode_value(kind: Any, value: Any) -> bytes:
    """Return a value of any type that messages are made of as one line of JSON without its line end."""
    return _adapter(kind).dump_json(value)


def decode_value(kind: Any, data: bytes | str) -> Any:
    """Return the value of a type from its JSON; raise InvalidMessage when it is none."""
    try:
        return _adapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        found = str(first["input"])
        raise InvalidMessage(
            f"a message must be a valid {_name(kind)}; "
            f"{f'its {place}' if place else 'it'} is wrong ({first['msg'].lower()}; found {found[:80]!r}); "
            "run the same version of faultset in all processes"
        ) from None


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    has_settings = isinstance(kind, type) and issubclass(kind, Message)
    return TypeAdapter(kind) if has_settings else TypeAdapter(kind, config=Message.__pydantic_config__)


def _name(kind: Any) -> str:
    return cast(str, getattr(kind, "__name__", None) or str(kind))
