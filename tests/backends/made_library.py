"""A libcudnn compiled here: it has the functions that are named and says that it is of a certain version."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from convwright.backends.cudnn.library import SONAME

# Each function hands its arguments, which fit into registers, to the one of the same name in the real library.
_FORWARDED = """
long {name}(long a, long b, long c, long d, long e, long f) {{
  long (*real)(long, long, long, long, long, long) = dlsym(opened(), "{name}");
  return real(a, b, c, d, e, f);
}}
"""
_OPENED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static void *opened(void) { static void *real; return real ? real : (real = dlopen("REAL", RTLD_NOW | RTLD_LOCAL)); }
"""


def compiler() -> str:
    """The system's compiler, without which a test is skipped."""
    found = shutil.which("cc")
    if found is None or os.name != "posix":
        pytest.skip("needs the system's C compiler")
    return found


def made(folder: Path, version: int, forwarded: Iterable[str] = (), real: str = "") -> Path:
    """The library, in ``folder``; ``forwarded`` are the functions that it has besides its version."""
    source = _OPENED.replace("REAL", real) + f"size_t cudnnGetVersion(void) {{ return {version}; }}\n"
    source += "".join(_FORWARDED.format(name=name) for name in forwarded)
    (folder / "cudnn.c").write_text(source)
    target = folder / SONAME
    # Its own name for itself is another: the real one asks for libraries that are called as it is.
    command = [compiler(), "-shared", "-fPIC", "-w", "-o", str(target), str(folder / "cudnn.c"), "-ldl"]
    subprocess.run(command, check=True)
    return target
