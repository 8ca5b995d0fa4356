"""`python -m groupwise` is the command."""

import sys

from groupwise.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
