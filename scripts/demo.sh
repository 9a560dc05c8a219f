#!/usr/bin/env bash
# Installs faultset into .venv, collects a small dataset from live episodes, and evaluates the default baselines on it.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/pip install --quiet --editable '.[evaluate]'
.venv/bin/collect --profile quick --healthy 22s --faulty 22s --apps hotel --normal 2 \
  --faults target-port,revoke-auth,network-delay,wrong-binary --out faultset-data
.venv/bin/evaluate faultset-data
