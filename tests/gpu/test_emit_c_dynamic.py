"""An emitted cache for any sizes on a live GPU: the bits and the times of the Python plan, from many threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from ctypes import byref, c_size_t, c_void_p, create_string_buffer
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.chosen import by_name
from convwright.emit.literals import is_engine, row_sizes
from convwright.measuring.compare import Outcome
from emit.compiled import Sizes, missing, shared
from gpu.emitted import (
    Operands,
    build,
    check_same,
    explained,
    in_python,
    pointers,
    scratch,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
    pytest.mark.skipif(missing("gcc") is not None, reason=str(missing("gcc"))),
]

TABLE = ["mb2ic16ih12oc24kh3ph1", "mb4ic64ih28oc64kh3ph1", "mb1ic3ih64oc32kh7sh2ph3"]
NOT_IN_TABLE = ["mb2ic16ih13oc24kh3ph1", "mb4ic64ih28oc128kh1", "mb1ic32ih20oc32kh3ph2dh1"]


class Dynamic:
    """An emitted cache."""

    def __init__(self, library: Any, *, limit: int = 1 << 30, at_once: int = 8) -> None:
        self.library = library
        self.cache = c_void_p()
        code = library.conv_create(byref(self.cache), limit, at_once)
        assert code == 0, explained(library, code)

    def __call__(self, operands: Operands, out: Tensor) -> Tensor:
        sizes, stream = row_sizes(operands.problem), torch.cuda.current_stream().cuda_stream
        code = self.library.conv_run(
            self.cache, *sizes, *pointers(*operands.multiplied, *operands.added, out), stream
        )  # fmt: skip
        assert code == 0, explained(self.library, code)
        return out

    def choice(self, problem: ConvProblem) -> str:
        text = create_string_buffer(512)
        code = self.library.conv_choice(self.cache, byref(Sizes(*row_sizes(problem))), text, len(text))
        assert code == 0, explained(self.library, code)
        return text.value.decode()

    def workspace_bytes(self, problem: ConvProblem) -> int:
        needed = c_size_t()
        code = self.library.conv_workspace_bytes(self.cache, byref(Sizes(*row_sizes(problem))), byref(needed))
        assert code == 0, explained(self.library, code)
        return needed.value

    def grow(self, nbytes: int) -> None:
        """The workspace of PyTorch's current stream."""
        code = self.library.conv_grow_workspace(self.cache, torch.cuda.current_stream().cuda_stream, nbytes)
        assert code == 0, explained(self.library, code)


@pytest.fixture(
    params=["dt:fp32 tag:nchw ep:none", "dt:fp16 tag:nhwc ep:bias+relu", "dt:fp16 tag:nhwc ep:residual+relu"]
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dynamic(kind: str, live: DeviceFacts, tmp_path: Path) -> Iterator[tuple[Dynamic, dict[ConvProblem, Candidate]]]:
    """A cache, and the candidates of its table."""
    words = dict(word.split(":") for word in kind.split())
    found = emit_c_dynamic(
        [f"{text} {kind}" for text in TABLE], dtype=words["dt"], layout=words["tag"], epilogue=words["ep"], device=live
    )
    assert not found.left_out
    made = Dynamic(shared(found, tmp_path))
    yield made, {candidate.problem: candidate for candidate in found.chosen}
    torch.cuda.synchronize()
    made.library.conv_destroy(made.cache)


def serving(cache: Dynamic, problem: ConvProblem, table: dict[ConvProblem, Candidate], live: DeviceFacts) -> Candidate:
    """The candidate that the cache says it runs."""
    name, _, source = cache.choice(problem).rpartition(" by the ")
    assert source == ("table" if problem in table else "heuristic")
    if problem in table and not is_engine(table[problem]):
        return table[problem]
    candidate = by_name(name, problem, live, Policy())
    assert problem not in table or candidate == table[problem]
    return candidate


def answers(
    cache: Dynamic, table: dict[ConvProblem, Candidate], kind: str, live: DeviceFacts
) -> list[tuple[Candidate, Operands, Tensor]]:
    """For each of the sizes what runs there, operands, and what the Python plan makes of them."""
    made = []
    for text in (*TABLE, *NOT_IN_TABLE):
        operands = Operands.of(ConvProblem.parse(f"{text} {kind}"))
        candidate = serving(cache, operands.problem, table, live)
        plan = build(candidate, live)
        assert cache.workspace_bytes(operands.problem) == plan.workspace_bytes
        expected = in_python(plan, operands, operands.out(), scratch(plan.workspace_bytes))
        made.append((candidate, operands, expected))
    torch.cuda.synchronize()
    return made


def test_any_sizes_are_computed_as_the_python_plan_does(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str, live: DeviceFacts
) -> None:
    cache, table = dynamic
    for candidate, operands, expected in answers(cache, table, kind, live):
        cache.grow(cache.workspace_bytes(operands.problem))
        got = cache(operands, operands.out())
        torch.cuda.synchronize()
        check_same(candidate, got, expected)


def test_eight_threads_share_a_cache_on_streams_of_their_own(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str, live: DeviceFacts
) -> None:
    cache, table = dynamic
    cases = answers(cache, table, kind, live)
    most = max(cache.workspace_bytes(operands.problem) for _, operands, _ in cases)
    cache.library.conv_forget(cache.cache)  # so that the threads meet the sizes for the first time, all at once
    failures: list[str] = []

    def work(number: int) -> None:
        try:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):
                cache.grow(most)
                run_at_random(cache, cases, Random(number))
        except BaseException as failure:
            failures.append(f"thread {number}: {failure!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "\n".join(failures)


def run_at_random(cache: Dynamic, cases: list[tuple[Candidate, Operands, Tensor]], random: Random) -> None:
    for _ in range(100):
        candidate, operands, expected = random.choice(cases)
        got = cache(operands, operands.out())
        torch.cuda.current_stream().synchronize()
        check_same(candidate, got, expected)


def test_a_cache_takes_as_long_as_the_python_plan_and_is_captured(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str, live: DeviceFacts
) -> None:
    cache, table = dynamic
    problem = next(problem for problem in table if problem.c == 64)
    operands, plan = Operands.of(problem), build(table[problem], live)
    nbytes = cache.workspace_bytes(problem)
    out, workspace = operands.out(), scratch(nbytes)

    def in_c() -> Tensor:
        # The timer captures on a stream of its own, and a workspace belongs to a stream.
        stream = torch.cuda.current_stream().cuda_stream
        code = cache.library.conv_set_workspace(cache.cache, stream, *pointers(workspace), nbytes)
        assert code == 0, explained(cache.library, code)
        return cache(operands, out)

    calls = {"c": in_c, "python": lambda: in_python(plan, operands, out, workspace)}
    for budget_us in (1e6, 4e6):  # Another try is a longer one.
        found = cw.measure_together(calls, device="cuda", budget_us=budget_us)
        verdict = cw.compare(found["c"], found["python"])
        if verdict.outcome is Outcome.SAME:
            break
    assert verdict.outcome is not Outcome.SLOW, f"{table[problem].id}: {verdict}"


def test_a_stream_without_a_workspace_runs_nothing(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str
) -> None:
    cache, table = dynamic
    hungry = next((problem for problem in table if cache.workspace_bytes(problem)), None)
    if hungry is None:
        pytest.skip("nothing in the table needs a workspace on this GPU")
    operands = Operands.of(hungry)
    out = operands.out()
    given = pointers(*operands.multiplied, *operands.added, out)
    library: ctypes.CDLL = cache.library
    assert library.conv_run(cache.cache, *row_sizes(hungry), *given, torch.cuda.Stream().cuda_stream) == 3
    torch.cuda.synchronize()
    assert out.isnan().all()
