from __future__ import annotations

import sys

from faultset.collector.load.process import main

sys.exit(main())
