"""What an agent asks of a language model, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from faultset.core.errors import FaultsetError

Message = dict[str, Any]
"""A message as OpenAI's chat completions write it: `role`, `content`, `tool_calls`, `tool_call_id`."""
FailureKind = Literal["server", "context", "refused_key", "unknown_model", "no_tools", "request"]
"""server: no reply after all attempts · context: more text than the model takes · refused_key · unknown_model ·
no_tools: the server takes no tools · request: refused for another reason."""


@dataclass(frozen=True, kw_only=True)
class RequestedCall:
    """A call of a tool that a model asks for."""

    call_id: str
    name: str
    arguments: str
    """JSON text, which may be none."""


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """One reply of a model."""

    text: str
    calls: tuple[RequestedCall, ...] = ()
    reasoning: str | None = None
    prompt_tokens: int | None = None
    """As the server reported them, those from its cache included; None where it did not."""
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float = 0.0
    """Time of the request that brought it."""
    cut: bool = False
    """Whether it ended because it was too long."""


class ModelFailure(FaultsetError):
    """A model gave no reply; the text says why in one sentence."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind: FailureKind = kind

    def __reduce__(self) -> tuple[type[ModelFailure], tuple[FailureKind, str]]:
        return ModelFailure, (self.kind, str(self))


class ChatModel(Protocol):
    """A model that replies to messages."""

    @property
    def name(self) -> str:
        """Name of the model, as tables show it."""
        ...

    def reply(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, time_limit_s: float) -> ModelReply:
        """Return the reply to a conversation.

        Parameters
        ----------
        messages
            All of them, oldest first.
        tools
            Tools that may be called, as OpenAI's function objects; may be empty.
        time_limit_s
            For this reply, all attempts together.

        Raises
        ------
        ModelFailure
            There is none.
        """
        ...
