"""Run the load by itself: `python -m faultset.collector.load ...`, as a pod does."""

from __future__ import annotations

import sys

from faultset.collector.load.process import main

sys.exit(main())
