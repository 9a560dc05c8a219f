"""Recorded episodes behind the HTTP APIs of Prometheus, Jaeger and Loki."""
