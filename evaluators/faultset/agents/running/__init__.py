"""Runs of agents on recorded episodes: what an agent is given, its limits, and the record of what it did."""
