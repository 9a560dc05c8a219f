"""Text as numbers, exactly: pandas before 3.1 gives the last digit of a double away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    import pandas as pd

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf(inity)?)$"


def parse_numbers(text: pd.Series) -> npt.NDArray[np.float64]:
    """Return the double that is nearest to each number written out, NaN where there is none.

    Space around a number does not matter; numbers that are numbers already are taken as they are.

    Examples
    --------
    >>> import pandas as pd
    >>> parse_numbers(pd.Series(["0.1", " -2e3 ", "n/a", None])).tolist()
    [0.1, -2000.0, nan, nan]
    """
    if text.dtype.kind in "iufb":
        return text.to_numpy(dtype=np.float64)
    trimmed = pc.utf8_trim_whitespace(pa.array(text, pa.string(), from_pandas=True))
    # Arrow's cast refuses a whole column for one cell that is no number, so these are emptied before.
    is_number = pc.match_substring_regex(trimmed, _NUMBER)
    return pc.cast(pc.if_else(is_number, trimmed, None), pa.float64()).to_numpy(zero_copy_only=False)
