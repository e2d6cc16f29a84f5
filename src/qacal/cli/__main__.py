"""Start the command line: the console script, and `python -m qacal.cli`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while packages are imported."""
    try:
        from qacal.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
