"""Analyse one incident with a panel of methods: alarms, suspects, evidence in sentences, and measured hit rates."""
