"""A finding about a kernel counts until the source changes that this kernel uses, whatever becomes of the others."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import get_args

import pytest

import convwright.backends.triton
from convwright.backends.registry import backend
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.fingerprints import imported, modules_used, source_hash, whole_hash
from convwright.backends.triton.kernels import KernelName
from convwright.core.plan import FingerprintsCandidates
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.tuning import listing

ROOT = Path(convwright.backends.triton.__file__).parent
PACKAGE = "convwright.backends.triton"
H200 = profile("h200")
FOLDERS = [*(name.replace("-", "_") for name in get_args(KernelName)), "elementwise", "pool", "resize"]
LAYER = ConvProblem.parse("mb8ic64ih56oc64kh3ph1")


def copied(to: Path) -> Path:
    """A copy of the package."""
    return Path(shutil.copytree(ROOT, to / "copy", ignore=shutil.ignore_patterns("__pycache__")))


def append(file: Path, text: str) -> None:
    with file.open("a") as opened:
        opened.write(text)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("direct/kernel.py", {"direct"}),
        ("direct/plan.py", {"direct", "wide_direct"}),
        ("wide_direct/rows.py", {"wide_direct"}),
        ("implicit_gemm/kernel.py", {"implicit_gemm", "staged_gemm", "folded_gemm"}),
        ("winograd/offers.py", {"winograd"}),
        ("few_channels.py", {"direct", "wide_direct", "taps_first"}),
        ("parts/kernel.py", {"weight_gradient", "staged_weight_gradient", "boxed_weight_gradient", "few_weights"}),
        ("elementwise/walk.py", {"elementwise"}),
        ("generated/functions.py", {"elementwise", "pool"}),
        ("by_role/plan.py", {"elementwise", "pool", "resize"}),
        ("launching/launch.py", {*FOLDERS}),
        ("backend.py", set()),
    ],
)
def test_an_edit_changes_the_kernels_that_use_the_file_and_no_others(
    file: str, changed: set[str], tmp_path: Path
) -> None:
    copy = copied(tmp_path)
    append(copy / file, "# one more line\n")
    assert {name for name in FOLDERS if source_hash(name, copy) != source_hash(name)} == changed
    assert whole_hash(copy) != whole_hash()


def test_a_copy_in_another_place_has_the_same_hashes(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    assert whole_hash(copy) == whole_hash()
    assert {name: source_hash(name, copy) for name in FOLDERS} == {name: source_hash(name) for name in FOLDERS}


def test_an_import_inside_a_function_is_followed(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    (copy / "helper.py").write_text("LEAST = 8\n")
    append(copy / "winograd" / "kernel.py", f"\ndef least():\n    from {PACKAGE} import (\n        helper,\n    )\n")
    assert copy / "helper.py" in modules_used("winograd", copy)
    assert copy / "helper.py" not in modules_used("direct", copy)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_kernel_uses_every_module_of_its_folder(folder: str) -> None:
    others = {ROOT / folder / "__init__.py", ROOT / folder / "backend.py"}
    assert {*(ROOT / folder).glob("*.py")} - others <= modules_used(folder)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_are_found_as_by_pythons_parser(path: Path) -> None:
    modules = set[Path]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith(PACKAGE) for alias in node.names), "such an import is not followed"
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{PACKAGE}."):
            home = ROOT.joinpath(*str(node.module).split(".")[3:])
            modules |= {home, *(home / alias.name for alias in node.names)}
    if path.name == "source.py":  # what generated kernels import stands in a text
        modules |= {ROOT / each for each in ("generated", "generated/functions", "launching/overlap")}
        modules |= {ROOT / "activation"} if path.parent.name == "elementwise" else set()
    files = {file for each in modules for file in (each.with_suffix(".py"), each / "__init__.py") if file.is_file()}
    assert imported(path) == files


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_the_fingerprints_of_all_candidates_count(direction: str) -> None:
    member = backend("triton")
    assert isinstance(member, FingerprintsCandidates)
    problem = ConvProblem.parse(f"mb8ic64ih56oc64kh3sh2ph1 dir:{direction}")
    prints = {listing.fingerprint(c, H200) for c in listing.candidates(member.candidates(problem, H200, Policy()))}
    assert prints
    assert prints <= member.fingerprints(H200)


def test_a_kernel_has_one_fingerprint_and_another_kernel_has_another() -> None:
    listed = listing.candidates(backend("triton").candidates(LAYER, H200, Policy()))
    prints = {
        name: {listing.fingerprint(c, H200) for c in listed if c.algorithm.startswith(name)}
        for name in ("implicit-gemm", "staged-gemm", "winograd")
    }
    assert [len(each) for each in prints.values()] == [1, 1, 1]
    assert len(set.union(*prints.values())) == 3


@pytest.mark.parametrize("kind", ["copy", "pointwise", "pool", "resize"])
def test_generated_kernels_have_a_fingerprint_of_their_own(kind: str) -> None:
    member = backend("triton", kind)
    assert isinstance(member, FingerprintsCandidates)
    assert member.fingerprints(H200) == {member.fingerprint(H200)}
    assert not member.fingerprints(H200) & set(TritonKernels().fingerprints(H200))
