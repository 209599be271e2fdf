"""``python -m convwright``: the command line."""

from __future__ import annotations

from convwright.cli.main import main

if __name__ == "__main__":
    main()
