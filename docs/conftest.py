"""Examples on these pages run as tests; those of the reference are run where they stand, in the source."""

from __future__ import annotations

import os

# No example reads or writes a user's store.
os.environ["CONVWRIGHT_STORE"] = "none"

collect_ignore = ["reference"]
