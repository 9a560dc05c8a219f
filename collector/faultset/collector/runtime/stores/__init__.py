"""Stores of an application, and how services use them."""
