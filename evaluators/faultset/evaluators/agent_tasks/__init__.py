"""Recorded episodes as tasks of other evaluation frameworks for agents, with labels where only their judge reads."""
