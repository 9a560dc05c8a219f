"""Reading and writing datasets of labelled telemetry.

`open_dataset` opens a version of a dataset, `verify` checks one, `import_dataset` and `export_dataset` read and write
other formats, and `EpisodeWriter` or `RecordingWriter` with `create_version` makes a dataset. All return records and
print nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
    from faultset.datasets.checks import Finding
    from faultset.datasets.checks.verification import verify
    from faultset.datasets.dataset import Dataset, Episode, open_dataset
    from faultset.datasets.exports.exporter import ExportOptions, ExportPlan, ExportResult, export_dataset
    from faultset.datasets.format.context import EpisodeContext, RecordingContext, Sampling
    from faultset.datasets.format.episodes import EpisodeWriter
    from faultset.datasets.format.incidents import Incident
    from faultset.datasets.format.labels import Label, RootCause
    from faultset.datasets.format.recordings import RecordingWriter, Stretch
    from faultset.datasets.format.version_files import FileRecord, RecordingSplit, Split, VersionFile
    from faultset.datasets.format.versions import compare_versions, create_version, list_versions
    from faultset.datasets.imports.examination import Examination, examine
    from faultset.datasets.imports.importer import ImportResult, import_dataset
    from faultset.datasets.recordings.recording import Recording
    from faultset.datasets.recordings.view import RecordingView, TimeSlice
    from faultset.datasets.remote.writing import PublishResult, publish_dataset
    from faultset.datasets.views import EpisodeView

__all__ = [
    "DataError",
    "Dataset",
    "Episode",
    "EpisodeContext",
    "EpisodeView",
    "EpisodeWriter",
    "Examination",
    "ExportOptions",
    "ExportPlan",
    "ExportResult",
    "FaultsetError",
    "FileRecord",
    "Finding",
    "ImportResult",
    "Incident",
    "Label",
    "PlatformError",
    "PublishResult",
    "Recording",
    "RecordingContext",
    "RecordingSplit",
    "RecordingView",
    "RecordingWriter",
    "RootCause",
    "Sampling",
    "Split",
    "Stretch",
    "TimeSlice",
    "UsageError",
    "VersionFile",
    "compare_versions",
    "create_version",
    "examine",
    "export_dataset",
    "import_dataset",
    "list_versions",
    "open_dataset",
    "publish_dataset",
    "verify",
]

__getattr__, __dir__ = lazy_names(__name__)
