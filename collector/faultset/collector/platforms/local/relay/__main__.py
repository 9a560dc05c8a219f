"""Run the relay by itself: `python -m faultset.collector.platforms.local.relay SOCKET`."""

import sys
from pathlib import Path

from faultset.collector.platforms.local.relay import main

main(Path(sys.argv[1]))
