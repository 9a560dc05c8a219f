"""Processes of an episode and the calls between them."""
