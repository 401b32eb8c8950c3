"""`python -m jengine.bench.gpu_check` is `command.main`."""

import sys

from jengine.bench.gpu_check.command import main

if __name__ == "__main__":
    sys.exit(main())
