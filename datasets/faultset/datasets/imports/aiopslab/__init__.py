"""What AIOpsLab's observer writes: CSV files of metrics, traces and logs, without any label."""

from faultset.datasets.imports.aiopslab.format import AIOpsLabImport

__all__ = ["AIOpsLabImport"]
