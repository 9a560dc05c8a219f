"""Faults that lie in feature flags: each turns one on in the ConfigMap from which the application reads them."""
