"""Pure scoring: an answer and the truth in, numbers out. Undefined values are NaN, never zero."""
