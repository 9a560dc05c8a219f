#!/usr/bin/env bash
# Installs faultset with its development tools into .venv and runs the tests. Tests of real processes can be late on a
# machine that is busy: the few that fail are run once more, by themselves, and both runs are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/pip install --quiet --editable '.[dev]'
# tests start hundreds of processes, each of which would compile what it imports
unset PYTHONDONTWRITEBYTECODE
status=0
.venv/bin/python -m pytest --numprocesses 5 --dist loadfile --no-loadscope-reorder "$@" || status=$?
if [ "$status" -eq 1 ]; then
  echo "tests failed; once more, those alone:"
  status=0
  .venv/bin/python -m pytest --last-failed --last-failed-no-failures none "$@" || status=$?
fi
exit "$status"
