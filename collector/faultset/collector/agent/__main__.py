"""`python -m faultset.collector.agent`."""

import sys

from faultset.collector.agent.server import main

if __name__ == "__main__":
    sys.exit(main())
