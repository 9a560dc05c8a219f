"""A dataset on a server that speaks S3: published, verified, evaluated, and gone on with after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, PlatformError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.remote.file_systems import list_remote_versions
from faultset.datasets.remote.writing import RemoteFolder, publish_dataset
from tests.s3_server import s3_bucket

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a server on loopback."""
    with s3_bucket(monkeypatch) as url:
        yield url


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(faultset, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_a_dataset_goes_to_a_bucket_and_is_verified_and_evaluated_there(
    example_root: Path, bucket: str, tmp_path: Path
) -> None:
    code, text = run("dataset", "publish", example_root, bucket)
    assert code == 0, text
    for command in ("show", "versions", "verify", "doctor"):
        code, text = run("dataset", command, bucket)
        assert code == 0, text
    arguments = ("--baselines", "ksigma,max-z", "--workers", 1, "--thresholds", "reference", "--protocol", "oracle")
    code, text = run("evaluate", bucket, *arguments, "--out", tmp_path / "out")
    assert code == 0, text
    assert (tmp_path / "out" / "results.parquet").is_file()


def test_an_interrupted_copy_to_a_bucket_shows_no_version_and_goes_on(
    example_root: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = RemoteFolder.put
    done: list[str] = []

    def failing(self: RemoteFolder, source: Path, name: str) -> None:
        if len(done) >= 7:
            raise PlatformError("the connection is lost")
        put(self, source, name)
        done.append(name)

    with monkeypatch.context() as broken:
        broken.setattr(RemoteFolder, "put", failing)
        with pytest.raises(PlatformError, match="connection is lost"):
            publish_dataset(example_root, bucket, threads=1)
    with pytest.raises(DataError, match="has no versions"):
        list_remote_versions(bucket)
    result = publish_dataset(example_root, bucket)
    assert result.copied == sum(map(len, open_dataset(example_root).files.values())) - 7
    assert list_remote_versions(bucket) == ["1.0.0"]


def test_a_bucket_that_is_not_there_is_one_sentence(example_root: Path, bucket: str) -> None:
    code, text = run("dataset", "publish", example_root, "s3://no-such-bucket-here/data")
    assert code == 4, text
    assert "s3://no-such-bucket-here/data cannot be" in text
    assert "Traceback" not in text
