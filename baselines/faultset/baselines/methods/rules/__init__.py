"""Plain rules on telemetry, as an operator would write them."""
