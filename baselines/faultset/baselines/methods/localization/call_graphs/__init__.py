"""Localizers that follow the calls between services."""
