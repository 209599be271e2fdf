"""Every form compiles without a warning as C and as C++, links, and says in words that there is no GPU."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from convwright.backends.cudnn.library import Missing, load
from convwright.core.problem import ConvProblem
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.emitted import EmittedC
from emit.compiled import LANGUAGES, STRICT, complaints, link, missing
from emit.forms import ALGORITHMS, ENGINES, algorithm, engine, of

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed"),
]

EVERY = [
    *(pytest.param(("engine", text), id=text) for text in ENGINES),
    *(pytest.param(pair, id=" ".join(pair)) for pair in ALGORITHMS),
]


@pytest.mark.first_cases(12)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("form", EVERY)
def test_it_compiles_without_a_warning(form: tuple[str, str], language: str, tmp_path: Path) -> None:
    kind, text = form
    candidate = engine(text) if kind == "engine" else algorithm(kind, text)
    assert complaints(of(candidate), tmp_path, language) == ""


@pytest.mark.parametrize("language", LANGUAGES)
def test_more_groups_than_an_int_holds_compile_without_a_warning(language: str, tmp_path: Path) -> None:
    groups = 1 << 31
    text = f"g{groups}mb1ic{groups}ih1oc{groups}kh1 dt:fp16 tag:nhwc"
    found = of(replace(engine(ENGINES[2]), problem=ConvProblem.parse(text)))
    assert f"    {groups}, /* groups */" in found.source
    assert complaints(found, tmp_path, language) == ""


def test_a_warning_would_be_noticed(tmp_path: Path) -> None:
    found = of(engine(ENGINES[0]))
    unused = found.source + "\nstatic int unused(int never)\n{\n    return 1;\n}\n"
    assert "never" in complaints(EmittedC("conv", found.header, unused, ()), tmp_path, "C")


@pytest.mark.first_cases(3)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("table", [[], ["mb2ic16ih10oc16kh3ph1", "g16mb1ic16ih9oc16kh3ph1"]], ids=["empty", "two"])
@pytest.mark.parametrize("epilogue", ["none", "relu", "residual+bias+relu"])
def test_any_sizes_compile_without_a_warning(table: list[str], epilogue: str, language: str, tmp_path: Path) -> None:
    texts = [f"{text} dt:fp16 tag:nhwc ep:{epilogue}" for text in table]
    found = emit_c_dynamic(texts, dtype="fp16", layout="nhwc", epilogue=epilogue, device="h200")
    assert complaints(found, tmp_path, language) == ""


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("effort", ["-O0", "-O1", "-Os", "-O3"])
@pytest.mark.parametrize("table", [[], ["mb2ic16ih10oc16kh3ph1"]], ids=["empty", "one"])
def test_compilers_warn_of_nothing_however_hard_they_look(table: list[str], effort: str, tmp_path: Path) -> None:
    """What they see depends on what they optimise: a loop over an empty table was a warning without, and none with."""
    texts = [f"{text} dt:fp16 tag:nhwc" for text in table]
    found = emit_c_dynamic(texts, dtype="fp16", layout="nhwc", device="h200")
    assert complaints(found, tmp_path, "C", effort) == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize("kind", ["engine", "gemm"])
def test_without_a_gpu_there_is_an_error_in_words(kind: str, tmp_path: Path) -> None:
    candidate = engine(ENGINES[0]) if kind == "engine" else algorithm(kind, ENGINES[0])
    of(candidate).write(tmp_path)
    program = tmp_path / "program"
    link(write_program(tmp_path), program, "-std=c11", *STRICT, str(tmp_path / "conv.c"))
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert done.stdout.startswith("a call of cuDNN failed; conv_last_failure gives the reason: cudnnCreate 1001 ")
    assert "CUDNN_STATUS_NOT_INITIALIZED" in done.stdout


PROGRAM = """
#include "conv.h"
#include <stdio.h>

int main(void)
{
    conv_plan *plan;
    int code = conv_create(&plan);
    conv_failure failure = conv_last_failure();
    printf("%s: %s %d %s %s\\n", conv_text(code), failure.call, failure.status, failure.status_name, failure.said);
    conv_destroy(plan);
    return code;
}
"""


def write_program(folder: Path) -> Path:
    path = folder / "program.c"
    path.write_text(PROGRAM)
    return path


DYNAMIC_PROGRAM = PROGRAM.replace("conv_plan *plan", "conv_cache *plan").replace("create(&plan)", "create(&plan, 0, 2)")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_there_is_no_cache_either(tmp_path: Path) -> None:
    emit_c_dynamic([], device="h200").write(tmp_path)
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(DYNAMIC_PROGRAM)
    link(source, program, "-std=c11", *STRICT, str(tmp_path / "conv.c"))
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert "cudnnCreate 1001 CUDNN_STATUS_NOT_INITIALIZED" in done.stdout


PAGE = Path(__file__).resolve().parents[2] / "docs" / "emit-c.md"


@pytest.mark.parametrize("number", [0, 1], ids=["one", "any sizes"])
def test_the_programs_on_the_page_compile(number: int, tmp_path: Path) -> None:
    programs = re.findall(r"^```c\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    found = emit_c_dynamic([], device="h200") if number else of(engine(ENGINES[0]))
    program = EmittedC("program", "", programs[number], ())
    found.write(tmp_path)
    assert complaints(program, tmp_path, "C") == ""
