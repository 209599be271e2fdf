"""Sizes whose planning failed are planned anew at the next call, however often it fails, and from nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem
from convwright.emit import any_sizes
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.emitted import EmittedC
from convwright.emit.literals import row_sizes
from emit.compiled import FAKE, libraries, link, missing
from emit.forms import H200, algorithm, engine

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed"),
]

LAYER = "mb2ic16ih10oc16kh3ph1 ep:relu"
TRIES = 12
SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# CUDA's libraries may map memory where the sanitizer lets nobody; what cuDNN keeps to its end is its own affair.
# Loaded by way of the sanitizer, cuDNN does not find the rest of itself by its own path.
ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": "detect_leaks=0:protect_shadow_gap=0",
    "LD_LIBRARY_PATH": ":".join(str(path.parent) for path in libraries() if path is not None),
}
PROGRAM = """
#include "conv.c"

static int run(conv_cache *cache)
{
    return conv_run(cache, %(sizes)s, (const void *)0x10000, (const void *)0x20000, NULL, NULL, (void *)0x50000, NULL);
}

int main(int count, char **words)
{
    const conv_sizes sizes = {%(sizes)s};
    conv_cache *cache;
    struct entry *entry;
    int failures = 0, zeros = 1, i;
    if (count != 5 || fake_device_is(words[1]) != 0 || conv_create(&cache, 1 << 30, 1) != CONV_OK)
        return 2;
    if (conv_grow_workspace(cache, NULL, 1 << 20) != CONV_OK)
        return 3;
    fake_fail(atoi(words[2]), atoi(words[3]), atoi(words[4]));
    while (run(cache) == CONV_CUDA_FAILED)
        failures++;
    if (run(cache) != CONV_OK || enter(cache, &sizes, &entry) != CONV_OK)
        return 4;
    for (i = 0; i < 16; i++)
        zeros = zeros && ((const float *)entry->zeros)[i] == 0.0f;
    printf("failures %%d operands %%d zeros %%d %%s\\n", failures, entry->graph.operand_count, zeros, entry->words);
    pthread_mutex_unlock(&entry->lock);
    conv_destroy(cache);
    printf("alive %%d\\n", (int)fake_alive());
    return 0;
}
"""


def emitted(served_by: str, monkeypatch: pytest.MonkeyPatch) -> tuple[EmittedC, Candidate | None]:
    """A cache whose sizes are served by a row of the table, of either kind, or by the heuristic."""
    if served_by == "heuristic":
        return emit_c_dynamic([], epilogue="relu", device="h200"), None
    candidate = engine(LAYER) if served_by == "engine" else algorithm("implicit-precomp-gemm", LAYER)
    monkeypatch.setattr(any_sizes, "best", lambda *_: (candidate, "by a test"))
    return emit_c_dynamic([LAYER], epilogue="relu", device="h200"), candidate


def program(found: EmittedC, folder: Path) -> Path:
    """The emitted file and what calls it as one program, sanitized where the compiler can."""
    found.write(folder)
    source, target = folder / "program.c", folder / "program"
    sizes = ", ".join(map(str, row_sizes(ConvProblem.parse(LAYER))))
    source.write_text(PROGRAM % {"sizes": sizes})
    link(source, target, *FAKE, *(SANITIZED if can_sanitize(folder) else []))
    return target


def can_sanitize(folder: Path) -> bool:
    source = folder / "nothing.c"
    source.write_text("int main(void)\n{\n    return 0;\n}\n")
    command = ["gcc", *SANITIZED, str(source), "-o", str(folder / "nothing")]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return False
    return subprocess.run([str(folder / "nothing")], env=ENVIRONMENT, capture_output=True, check=False).returncode == 0


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("served_by", ["engine", "algorithm", "heuristic"])
def test_runs_fail_until_there_is_memory_and_then_serve(
    served_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, candidate = emitted(served_by, monkeypatch)
    compiled = program(found, tmp_path)
    assert H200.properties_json is not None
    for fails in ((TRIES, 0, 0), (0, TRIES, 0), (0, 0, TRIES), (2, 3, 4)):
        command = [str(compiled), H200.properties_json, *map(str, fails)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        served, alive = done.stdout.splitlines()
        operands = 0 if served_by == "algorithm" else 4
        assert served.startswith(f"failures {sum(fails)} operands {operands} zeros 1 cudnn/")
        assert served.endswith(" by the heuristic" if candidate is None else f" zeros 1 {candidate.id} by the table")
        assert alive == "alive 0", "what failed gave everything back"
