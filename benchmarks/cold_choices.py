"""What a first user gets for random convolutions: cold caches, a fresh process for each, default settings.

    python benchmarks/cold_choices.py --suffix "dt:fp32" --problems 40 --out results.jsonl
    python benchmarks/cold_choices.py --suffix "dt:fp16 tag:nhwc ep:bias+relu" --problems 40
    python benchmarks/cold_choices.py --suffix "dt:fp32 dir:backward_data" --problems 10
    python benchmarks/cold_choices.py --suffix "dt:fp32" --problems 40 --rows 0:40:2 --device cuda:1

Each problem has an empty store and an empty cache of kernels. Its process calls the convolution as a user does until
nothing is being compiled any more, and at most for ``--wait-s``. Then it times what an eager call and a captured call
run beside PyTorch's own call on the device, in one run of the timer, and for forward convolutions loops of eager calls
of both, by turns. Errors of both are taken on the same inputs. TF32 is off.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from common import torch_calls
from common.chosen_calls import call_of
from common.pace import Pace, sliced
from common.random_problems import problems
from common.retiming import faster
from common.stages import Answer, Stage, serve
from torch import Tensor

import convwright as cw
from convwright.core.direction import Direction, Role
from convwright.core.epilogue import Activation
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager.decision import choices_for
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.compare import compare
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_together
from convwright.report.benchmarks.lines import Lines
from convwright.report.benchmarks.table import geometric_mean
from convwright.tuning.compile_queue import compile_queue

SEED, PATIENCE_S = 20261128, 180.0
_CALLS, _ROUNDS, _TIMING_US = 100, 15, 300e3
_SLOW_LOOP = 1.03
_CONVOLUTIONS = {1: cw.conv1d, 2: cw.conv2d, 3: cw.conv3d}


@torch.no_grad()
def answered(options: argparse.Namespace, question: Answer) -> Answer:
    """One problem in its fresh process; without one it only starts."""
    if question["problem"] is None:
        return {}
    torch.backends.cudnn.allow_tf32 = False
    problem, device = ConvProblem.parse(question["problem"]), device_facts(options.device)
    given = operands(problem, Kind.NORMAL, options.device, seed=SEED)
    torchs = torch_calls.calls(["default"], problem, given)["default"]
    asked = partial(choices_for, problem, device, Policy(), None)
    ours = _written(problem, given) if problem.direction is Direction.FORWARD else asked
    first_s, decided_s = _decided(ours, problem, options.wait_s)
    answer = asked()
    calls = {name: call_of(getattr(answer, name), problem, given, Policy().weights) for name in ("eager", "captured")}
    timings = measure_together(calls | {"torch": torchs}, device=options.device, budget_us=_TIMING_US, seed=SEED)
    ratios = {name: compare(timings[name], timings["torch"]) for name in calls}
    reference = sampled_reference(problem, given)
    loops = _eager_loops(ours, torchs) if problem.direction is Direction.FORWARD else {}
    return {
        "first_call_s": first_s, "decided_s": decided_s, "loops_us": loops,
        "choices": {name: getattr(answer, name).candidate.id for name in calls},
        "times_us": {name: asdict(timing.call_us) for name, timing in timings.items()},
        "ratios": {name: ratio.to_json() for name, ratio in ratios.items()},
        "errors": {name: errors_of(call(), reference) for name, call in (calls | {"torch": torchs}).items()},
        "conditions": dict(timings["torch"].conditions),
    }  # fmt: skip


def _written(problem: ConvProblem, given: dict[Role, Tensor]) -> Callable[[], object]:
    """What a user writes."""
    padding = problem.symmetric_padding
    assert padding is not None
    window = problem.stride, padding, problem.dilation, problem.groups
    activation = None if problem.epilogue.activation is Activation.NONE else problem.epilogue.activation.value
    convolution = _CONVOLUTIONS[problem.rank]
    return partial(convolution, given[Role.X], given[Role.W], given.get(Role.BIAS), *window, activation=activation)


def _decided(call: Callable[[], object], problem: ConvProblem, wait_s: float) -> tuple[float, float]:
    """Seconds that the first call took, and until the last decision was made."""
    begun_s = perf_counter()
    call()
    _synchronize()
    first_s = perf_counter() - begun_s
    while True:
        for _ in range(3):
            call()
        _synchronize()
        decided_s = perf_counter() - begun_s
        if not compile_queue().missing(problem) or decided_s > wait_s:
            return first_s, decided_s


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _eager_loops(ours: Callable[[], object], torchs: Callable[[], object]) -> dict[str, float]:
    """The wall time of a call in a loop, the median of many loops."""
    rounds = [{"ours": _loop_us(ours), "torch": _loop_us(torchs)} for _ in range(_ROUNDS)]
    return {name: median(each[name] for each in rounds) for name in ("ours", "torch")} | {
        "ratio": median(each["ours"] / each["torch"] for each in rounds)
    }


def _loop_us(call: Callable[[], object]) -> float:
    _synchronize()
    begun_s = perf_counter()
    for _ in range(_CALLS):
        call()
    _synchronize()
    return (perf_counter() - begun_s) / _CALLS * 1e6


class _Fresh:
    """A process that knows nothing yet: it has imported PyTorch, nothing more."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = self._folder.name
        cold = {"CONVWRIGHT_STORE": f"{folder}/store.sqlite", "TRITON_CACHE_DIR": f"{folder}/triton"}
        self.stage = Stage("answer", cold | {"CUDA_CACHE_PATH": f"{folder}/cuda"})
        self.stage.ask({"problem": None})

    def end(self) -> None:
        with self._folder, self.stage:
            pass


def _fresh_ones() -> Generator[Stage, None, None]:
    """Processes, each started while the one before it works."""
    with ThreadPoolExecutor(2) as pool:
        coming = pool.submit(_Fresh)
        try:
            while True:
                process, coming = coming.result(), pool.submit(_Fresh)
                yield process.stage
                pool.submit(process.end)
        finally:
            coming.result().end()


def everything(options: argparse.Namespace) -> None:
    drawn = list(islice(problems(options.seed, options.suffix), options.problems))[options.rows]
    lines, done = None if options.out is None else Lines(options.out), list[Answer]()
    known = {"benchmark": "cold choices", "suffix": options.suffix, "seed": options.seed, "wait_s": options.wait_s}
    with closing(_fresh_ones()) as processes:
        for problem, process in zip(Pace(options.limit_s).rows(drawn), processes, strict=False):
            answer = process.ask({"problem": problem.key}, patience_s=PATIENCE_S)
            date = datetime.now(UTC).isoformat(timespec="seconds")
            line = {**known, "problem": problem.key, "date": date, "failure": None, **answer}
            done.append(line)
            if lines is not None:
                lines.add(line)
            print(_told(line), flush=True)
    print(summary(done))


def _told(line: Answer) -> str:
    if line["failure"]:
        return f"{line['problem']}\n    {line['failure']}"
    captured, eager = line["ratios"]["captured"], line["ratios"]["eager"]
    loops = line["loops_us"]
    loop = f", loop {loops['ratio']:.2f}" if loops else ""
    return (
        f"{line['problem']}\n    {line['times_us']['torch']['value']:9.1f} µs; captured "
        f"{_shown(captured)} {line['choices']['captured']}; eager {_shown(eager)} {line['choices']['eager']}{loop}; "
        f"decided after {line['decided_s']:.1f} s"
    )


def _shown(verdict: Answer) -> str:
    return f"{verdict['ratio']['value']:.3f} {verdict['outcome']}"


def summary(lines: list[Answer]) -> str:
    """Geometric means of how many times as fast, and how many choices are slower."""
    right = [line for line in lines if not line["failure"]]
    said = [f"{len(lines)} problems, {len(lines) - len(right)} failed"]
    for name in ("captured", "eager") if right else ():
        verdicts = [line["ratios"][name] for line in right]
        mean = geometric_mean([faster(verdict["ratio"]) for verdict in verdicts])
        slower = sum(verdict["outcome"] == "slow" for verdict in verdicts)
        said.append(f"{name}: {mean.value if mean else 1:.3f} times as fast as PyTorch, {slower} slower")
    loops = [line["loops_us"]["ratio"] for line in right if line["loops_us"]]
    if loops:
        said.append(
            f"eager loops: at most {max(loops):.3f} of PyTorch's time, {sum(r > 1.03 for r in loops)} over 1.03"
        )
    return "; ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suffix", default="dt:fp32", help="data type, direction, layouts and epilogue")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--rows", type=sliced, default=slice(None), help="of these problems, from:to:step")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--wait-s", type=float, default=10.0, help="for kernels that are compiled in the background")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no problem after so long")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, nargs="+", help="print the summary of these files, and run nothing")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(summary([line for path in options.read for line in Lines(path).read()]))
    elif options.stage:
        serve(partial(answered, options))
    else:
        everything(options)


if __name__ == "__main__":
    main()
