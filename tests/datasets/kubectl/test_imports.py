"""What is shared by those that start often is light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import faultset.datasets.kubectl as package

MODULES = [path.stem for path in Path(str(package.__file__)).parent.glob("*.py") if path.stem != "__init__"]


def test_no_module_brings_a_package_of_others() -> None:
    names = ", ".join(f"faultset.datasets.kubectl.{name}" for name in MODULES)
    heavy = "{'click', 'duckdb', 'numpy', 'pandas', 'pyarrow', 'pydantic', 'yaml'}"
    code = f"import sys, {names}; print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.strip() == "[]"
