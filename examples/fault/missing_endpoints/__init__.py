"""A fault of Services for faultset."""
