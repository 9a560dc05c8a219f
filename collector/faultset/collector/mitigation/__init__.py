"""Mitigation: repair a live fault, and judge whether the application has recovered."""
