"""Emitted C, compiled and loaded: where the compilers and the headers are, and how its functions are called."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from convwright.emit.emitted import EmittedC

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
LANGUAGES = {"C": ["gcc", "-std=c11"], "C++": ["g++", "-std=c++17", "-x", "c++"]}
# Unoptimised, which halves the time that compilers take; what runs on a real GPU is optimised.
FAKE = ["-std=gnu11", "-O0", "-include", str(Path(__file__).with_name("fake_device.h"))]


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def _nvidia() -> list[Path]:
    """Where NVIDIA's wheels are."""
    return _folders("nvidia")


def _cuda() -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield from (folder / "cu13" for folder in _nvidia())
    yield from (folder / "cuda_runtime" for folder in _nvidia())
    yield from sorted(Path("/usr/local").glob("cuda*"), reverse=True)


def _with(folders: Sequence[Path], *names: str) -> Path | None:
    """The first folder that has all these."""
    return next((folder for folder in folders if all((folder / name).exists() for name in names)), None)


@lru_cache
def headers() -> tuple[Path, ...]:
    """The folders of cuDNN's and CUDA's headers; none where one of them is missing."""
    system = [Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu")]
    cudnn = _with([*(folder / "cudnn/include" for folder in _nvidia()), *system], "cudnn.h")
    # A wheel has the first, and leaves out the second, which it includes.
    triton = [folder / "backends/nvidia/include" for folder in _folders("triton")]
    cuda = _with([*(folder / "include" for folder in _cuda()), *triton], "cuda_runtime_api.h", "crt/host_defines.h")
    return () if cudnn is None or cuda is None else (cudnn, cuda)


def missing(*compilers: str) -> str | None:
    """What an emitted file cannot be compiled without and is not here, in words."""
    for compiler in compilers or ("gcc", "g++"):
        if shutil.which(compiler) is None:
            return f"there is no {compiler}"
    return None if headers() else "the headers of cuDNN or of CUDA are not installed"


def libraries() -> tuple[Path | None, Path | None]:
    """libcudnn and libcudart: those that this process has loaded, or else those of NVIDIA's wheels, or the system's."""
    system = [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib")]
    cudnn = [*(folder / "cudnn/lib" for folder in _nvidia()), *system]
    cuda = [*(folder / lib for folder in _cuda() for lib in ("lib", "lib64")), *system]
    return _library("libcudnn.so.9", cudnn), _library("libcudart.so.1[23]", cuda)


def _library(pattern: str, folders: Sequence[Path]) -> Path | None:
    loaded = [Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line]
    found = [path for path in dict.fromkeys(loaded) if path.match(pattern)]
    return next(iter([*found, *(path for folder in folders for path in sorted(folder.glob(pattern)))]), None)


def run_compiler(command: Sequence[str]) -> str:
    """What a compiler complains of; empty where it succeeds without a word."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    return said if said or not done.returncode else f"exit status {done.returncode}"


def complaints(emitted: EmittedC, folder: Path, language: str, effort: str = "-O2") -> str:
    """What the strictest reading of a compiler has against the emitted file. As C++ it is only read: what optimising
    shows, it shows of C."""
    source, _ = emitted.write(folder)
    command = [*LANGUAGES[language], effort, *STRICT, *(f"-I{place}" for place in headers())]
    ends = ["-c", str(source), "-o", str(folder / "x.o")] if language == "C" else ["-fsyntax-only", str(source)]
    return run_compiler([*command, *ends])


def link(source: Path, target: Path, *options: str) -> None:
    """Compile and link against cuDNN and CUDA: a shared library, or with other ``options`` something else."""
    found = [path for path in libraries() if path is not None]
    places = [f"-Wl,-rpath,{path.parent}" for path in found]
    includes = [f"-I{place}" for place in headers()]
    command = ["gcc", "-O2", *includes, *(options or ("-std=c11", "-shared", "-fPIC")), str(source), "-o", str(target)]
    said = run_compiler([*command, *map(str, found), *places, "-pthread"])
    assert not said, said


_linked: dict[tuple[str, ...], bytes] = {}  # libraries, by what they are compiled from


def shared(emitted: EmittedC, folder: Path, *options: str) -> ctypes.CDLL:
    """The emitted file as a library that is loaded; its functions say what they take. A file that was compiled before
    is a new library too, with a state of its own."""
    files = emitted.write(folder)
    target = folder / f"lib{emitted.name}.so"
    key = *(file.read_text() for file in files), *options
    if key not in _linked:
        link(files[0], target, "-shared", "-fPIC", *(options or ("-std=c11",)))
        _linked[key] = target.read_bytes()
    target.write_bytes(_linked[key])
    loaded = ctypes.CDLL(str(target))
    _declare(loaded, emitted.name)
    return loaded


def with_fake_device(emitted: EmittedC, folder: Path) -> ctypes.CDLL:
    """The same, with a GPU that is played."""
    loaded = shared(emitted, folder, *FAKE)
    loaded.fake_said.restype = c_char_p
    loaded.fake_alive.restype = loaded.fake_descriptors_made.restype = c_int64
    loaded.fake_answer.argtypes = [c_int, c_size_t]
    loaded.fake_tell.argtypes = [c_void_p] * 4
    return loaded


class Failure(ctypes.Structure):
    """``conv_failure``."""

    _fields_ = [("call", c_char_p), ("status", c_int), ("status_name", c_char_p), ("said", c_char_p)]


class Sizes(ctypes.Structure):
    """``conv_sizes``."""

    _fields_ = [
        (name, c_int64)
        for name in (
            "n", "c", "h", "w", "k", "r", "s",
            "pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "groups",
        )
    ]  # fmt: skip


_SIZE_COUNT = len(Sizes._fields_)
_TAKES: dict[str, list[Any]] = {
    "workspace_bytes": [c_void_p],
    "destroy": [c_void_p],
    "run": [c_void_p] * 8,
    "create": [POINTER(c_void_p)],
}
_DYNAMIC_TAKES: dict[str, list[Any]] = {
    "create": [POINTER(c_void_p), c_size_t, c_int],
    "set_workspace": [c_void_p, c_void_p, c_void_p, c_size_t],
    "grow_workspace": [c_void_p, c_void_p, c_size_t],
    "workspace_bytes": [c_void_p, POINTER(Sizes), POINTER(c_size_t)],
    "choice": [c_void_p, POINTER(Sizes), c_char_p, c_size_t],
    "run": [c_void_p, *[c_int64] * _SIZE_COUNT, *[c_void_p] * 6],
    "forget": [c_void_p],
    "destroy": [c_void_p],
}


def _declare(loaded: ctypes.CDLL, name: str) -> None:
    dynamic = hasattr(loaded, f"{name}_forget")
    for function, takes in (_DYNAMIC_TAKES if dynamic else _TAKES).items():
        getattr(loaded, f"{name}_{function}").argtypes = takes
    if not dynamic:
        getattr(loaded, f"{name}_workspace_bytes").restype = c_size_t
    for nothing in ("destroy", "forget") if dynamic else ("destroy",):
        getattr(loaded, f"{name}_{nothing}").restype = None
    getattr(loaded, f"{name}_text").restype = c_char_p
    getattr(loaded, f"{name}_last_failure").restype = Failure
