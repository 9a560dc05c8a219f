#!/usr/bin/env bash
# Installs faultset with its development tools into .venv and runs the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/pip install --quiet --editable '.[dev]'
.venv/bin/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"
