from __future__ import annotations

import logging
import shutil
import signal
import sys

import pytest

from faultset.core.errors import UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins

GROUP = "faultset.samples"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution that announces entry points, for the length of a test."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(distribution: str, points: dict[str, str], modules: dict[str, str]) -> None:
        info = tmp_path / f"{distribution}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        lines = "".join(f"{name} = {value}\n" for name, value in points.items())
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)

    return add


def test_a_broken_plugin_takes_none_of_the_others_away(install, caplog):
    install("good", {"one": "sample_good:VALUE"}, {"sample_good": "VALUE = 1\n"})
    install("bad", {"two": "sample_bad:VALUE"}, {"sample_bad": "raise RuntimeError('no licence')\n"})
    with caplog.at_level(logging.WARNING):
        assert load_plugins(GROUP) == {"one": 1}
    assert 'the plug-in "two" of bad 1.2' in caplog.text
    assert "RuntimeError: no licence" in caplog.text


def test_a_stale_installation_is_one_line_with_a_count_and_the_remedy(install, caplog, monkeypatch):
    monkeypatch.setattr("faultset.core.plugins._reported", set())
    install("faultset", {"one": "moved_away:A", "two": "moved_away:B", "three": "moved_away:C"}, {})
    with caplog.at_level(logging.WARNING):
        assert load_plugins(GROUP) == load_plugins(GROUP) == {}
    [line] = caplog.messages
    assert line.startswith(f"3 of the plug-ins in {GROUP} cannot be loaded; the installation of faultset is ")
    assert "run pip install again" in line


def test_a_broken_plugin_is_an_error_for_who_asks_for_it(install):
    install("bad", {"two": "sample_bad:MISSING"}, {"sample_bad": "VALUE = 1\n"})
    with pytest.raises(UsageError, match=r"of bad 1\.2 .*sample_bad:MISSING.* cannot be loaded: AttributeError"):
        load_plugin(GROUP, "two", kind="sample")


def test_an_unknown_name_suggests_the_nearest(install):
    install("good", {"first": "sample_good:VALUE"}, {"sample_good": "VALUE = 1\n"})
    with pytest.raises(UsageError, match="first"):
        load_plugin(GROUP, "frist", kind="sample")


def test_one_name_for_two_objects_is_an_error_that_names_both_and_harms_no_other(install):
    install("good", {"one": "sample_good:VALUE"}, {"sample_good": "VALUE = 1\n"})
    install("other", {"one": "sample_other:VALUE", "two": "sample_other:VALUE"}, {"sample_other": "VALUE = 2\n"})
    assert load_plugins(GROUP) == {"two": 2}
    with pytest.raises(UsageError, match=r"good 1\.2.*other 1\.2|other 1\.2.*good 1\.2"):
        load_plugin(GROUP, "one", kind="sample")


def test_what_is_not_accepted_is_named_with_the_reason(install):
    def accept(name, loaded):
        raise ValueError(f"{name} must be even")

    install("good", {"one": "sample_good:VALUE"}, {"sample_good": "VALUE = 1\n"})
    with pytest.raises(UsageError, match=r'"one" of good 1\.2 .* cannot be used: .*one must be even'):
        load_plugin(GROUP, "one", kind="sample", accept=accept)


def test_an_exit_on_import_is_an_error_like_any_other(install):
    install("bad", {"two": "sample_bad:VALUE"}, {"sample_bad": "raise SystemExit(0)\n"})
    with pytest.raises(UsageError, match=r'"two" of bad 1\.2 .*SystemExit: 0'):
        load_plugin(GROUP, "two", kind="sample")


def test_an_interrupt_that_a_module_raises_by_itself_is_an_error_like_any_other(install):
    install("bad", {"two": "sample_bad:VALUE"}, {"sample_bad": "raise KeyboardInterrupt\n"})
    with pytest.raises(UsageError, match=r'"two" of bad 1\.2 .*it raised KeyboardInterrupt'):
        load_plugin(GROUP, "two", kind="sample")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_of_the_user_while_a_module_is_imported_stays_one(install):
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nVALUE = 1\n"
    install("slow", {"two": "sample_slow:VALUE"}, {"sample_slow": text})
    with pytest.raises(KeyboardInterrupt):
        load_plugin(GROUP, "two", kind="sample")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_plugin_prints_on_import_does_not_reach_standard_output(install, capsys):
    install("loud", {"one": "sample_loud:VALUE"}, {"sample_loud": "print('hello')\nVALUE = 1\n"})
    assert load_plugin(GROUP, "one", kind="sample") == 1
    assert capsys.readouterr() == ("", "hello\n")


def test_nothing_is_imported_to_list_what_is_there(install):
    install("bad", {"two": "sample_bad:VALUE"}, {"sample_bad": "raise RuntimeError\n"})
    assert plugins(GROUP)["two"].distribution == "bad 1.2"


def test_what_is_installed_or_removed_later_is_noticed(install, tmp_path):
    install("good", {"one": "sample_good:VALUE"}, {"sample_good": "VALUE = 1\n"})
    assert set(plugins(GROUP)) == {"one"}
    install("other", {"two": "sample_other:VALUE"}, {"sample_other": "VALUE = 2\n"})
    assert set(plugins(GROUP)) == {"one", "two"}
    shutil.rmtree(tmp_path / "good-1.2.dist-info")
    assert set(plugins(GROUP)) == {"two"}
