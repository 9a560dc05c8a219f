"""Faults that begin at the custom resource of an operator, which spreads them; and faults of the operator itself."""
