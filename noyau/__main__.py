"""`python -m noyau` is the command `noyau`."""

from noyau.jobs.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
