"""Run the load as a program: `python -m faultset.collector.load ...`."""

from __future__ import annotations

import sys

from faultset.collector.load.process import main

sys.exit(main())
