"""The program `noyau`, also `python -m noyau`. Ctrl-C ends it without a traceback during its imports, too."""

import sys


def main() -> int:
    """Import and run the command line; returns its exit status."""
    try:
        from noyau.jobs.cli import main as run
    except KeyboardInterrupt:
        print("noyau: interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
