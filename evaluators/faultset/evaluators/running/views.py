"""Views as the runner hands them out: frames are made once per episode, and undeclared tables stay closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Memo = dict[tuple[Any, ...], Any]


class UndeclaredTable(Exception):
    """A baseline asked for requests of the clients without declaring that it needs them."""


class SharedView(EpisodeView):
    """A view whose frames are computed once and shared by all methods that look at the episode.

    Every caller gets a frame of its own: pandas copies on write, so nobody can change what others see.
    """

    def __init__(self, path: str, memo: Memo, *, sli: bool) -> None:
        super().__init__(path)
        self._memo = memo
        self._sli = sli

    def table(
        self, name: str, columns: Sequence[str] | None = None, filters: Any = None
    ) -> pa.Table:  # Arrow tables cannot be changed, so they need no protection
        self._check(name)
        if filters is not None:
            return super().table(name, columns, filters)
        key = ("table", name, None if columns is None else tuple(columns))
        return self._once(key, lambda: super(SharedView, self).table(name, columns))

    def wide(self, step_s: float = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        chosen = None if roles is None else frozenset(roles)
        make = lambda: super(SharedView, self).wide(step_s, chosen)  # noqa: E731
        return self._once(("wide", float(step_s), chosen), make).copy(deep=False)

    def _frame(self, name: str) -> pd.DataFrame:
        self._check(name)
        return self._once(("frame", name), lambda: super(SharedView, self)._frame(name)).copy(deep=False)

    def _check(self, name: str) -> None:
        if name == "requests" and not self._sli:
            raise UndeclaredTable('reads the table "requests" but does not declare needs = {"sli"}')

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]


def prepare_pandas() -> None:
    """Turn on copy-on-write where it is not yet the default; shared frames rely on it."""
    import pandas as pd

    if int(pd.__version__.partition(".")[0]) < 3:
        pd.options.mode.copy_on_write = True
