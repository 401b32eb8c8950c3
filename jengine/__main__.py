"""`python -m jengine` is the same as the command `jengine`."""

import sys

from jengine.cli import main

if __name__ == "__main__":
    sys.exit(main())
