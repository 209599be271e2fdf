"""The text of a kernel → the kernel."""

from __future__ import annotations

import hashlib
import linecache
from functools import cache
from typing import Any


@cache
def kernel(text: str, name: str) -> Any:
    """The kernel ``name`` in this source. Triton reads a kernel's source from its file. A generated kernel has no file,
    so its source is added to Python's line cache."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    file = f"<{name} {digest}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module: dict[str, Any] = {"__name__": f"{__package__}.{name}_{digest}"}
    exec(compile(text, file, "exec"), module)
    return module[name]
