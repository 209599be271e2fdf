"""Doctests are collected from every module; here are those that cannot be imported on this machine."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/convwright/backends/triton/*_kernel.py"]
if find_spec("nvidia") is None:  # and so no cuDNN, whose planner these ask
    collect_ignore_glob += ["src/convwright/emit/one.py", "src/convwright/emit/any_sizes.py", "docs/emit-c.md"]
