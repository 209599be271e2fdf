"""cuDNN's engines: the proposed ones for a graph, the others, and one by its number and knobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convwright.backends.cudnn.graph.attributes import KNOB_KINDS, Attribute, BehaviorNote, Kind, NumericalNote
from convwright.backends.cudnn.graph.descriptor import Blank, Descriptor, cudnn
from convwright.backends.cudnn.graph.device import Target
from convwright.core.finding import says_out_of_memory
from convwright.errors import BackendError

Knobs = tuple[tuple[int, int], ...]

# Two heuristics and a fallback, asked in the order A, B, FALLBACK.
_MODE_A, _MODE_B, _FALLBACK = 3, 1, 2


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine in one configuration. Its numbers are valid for one pattern and one version of cuDNN.

    An engine that ``compiles`` does so when its plan is finalized.
    """

    index: int
    knobs: Knobs
    notes: frozenset[NumericalNote]
    compiles: bool
    config: Descriptor


def proposed_engines(graph: Descriptor, device: Target, *, briefly: bool = False) -> list[Engine]:
    """cuDNN's proposals for ``graph`` on ``device``, best first, without duplicates. ``briefly`` asks only the first
    heuristic that has any, which takes a fifth of the time.

    Raises cuDNN's last error if no heuristic has a proposal, or if one of them ran out of memory.
    """
    found: dict[tuple[int, Knobs], Engine] = {}
    failure = BackendError("cuDNN proposes no engine for this problem")
    for mode in (_MODE_A, _MODE_B, _FALLBACK):
        try:
            for engine in _ask(graph, device, mode):
                found.setdefault((engine.index, engine.knobs), engine)
        except BackendError as error:
            if says_out_of_memory(str(error)):
                raise
            failure = error
        if briefly and found:
            break
    if not found:
        raise failure
    return list(found.values())


def engine_count(graph: Descriptor) -> int:
    """The number of engines that this version of cuDNN has for graphs of this pattern, supported or not."""
    (count,) = graph.get(Attribute.GRAPH_ENGINE_COUNT)
    return int(count)


def configured(graph: Descriptor, device: Target, index: int, knobs: Knobs = ()) -> Engine:
    """An engine by its number and knobs, without asking a heuristic. cuDNN sets the knobs that are left out.

    Raises cuDNN's reason if the engine does not support this graph or device.
    """
    engine = _engine(graph, device, index)
    return Engine(index, knobs, *_notes(engine), _with_knobs(engine, knobs))


def knob_ranges(graph: Descriptor, device: Target, index: int) -> dict[int, range]:
    """The knobs of an engine with the values that each can take. Few combinations are valid."""
    found = _engine(graph, device, index).fill(Attribute.ENGINE_KNOBS, Blank(Kind.KNOB_INFO, KNOB_KINDS))
    return {int(info.get(Attribute.KNOB_INFO_TYPE)[0]): _range(info) for info in found}


def execution_plan(config: Descriptor, device: Target) -> Descriptor:
    """The configuration, ready to run. Raises cuDNN's reason if the device or the shape does not allow it."""
    plan = Descriptor(Kind.EXECUTION_PLAN).set(Attribute.PLAN_CONFIG, config)
    return device.of_plan(plan).finalize()


def workspace_bytes(plan: Descriptor) -> int:
    """The workspace that a finalized plan needs."""
    (needed,) = plan.get(Attribute.PLAN_WORKSPACE_BYTES)
    return int(needed)


def expected_workspace_bytes(config: Descriptor) -> int | None:
    """The same before finalization; None if cuDNN does not report it."""
    try:
        (needed,) = config.get(Attribute.CONFIG_WORKSPACE_BYTES)
    except BackendError:
        return None
    return int(needed)


def _ask(graph: Descriptor, device: Target, mode: int) -> Iterator[Engine]:
    heuristics = Descriptor(Kind.ENGINE_HEURISTICS).set(Attribute.HEURISTICS_GRAPH, graph)
    device.of_heuristics(heuristics.set(Attribute.HEURISTICS_MODE, mode)).finalize()
    most = heuristics.count(Attribute.HEURISTICS_RESULTS)
    # Created once for all configurations: there are 44 kinds of knob and some 80 configurations.
    engine, choices = Blank(Kind.ENGINE), Blank(Kind.KNOB_CHOICE, KNOB_KINDS)
    for config in heuristics.fill(Attribute.HEURISTICS_RESULTS, Blank(Kind.ENGINE_CONFIG, most)):
        yield _describe(config, engine, choices)


def _engine(graph: Descriptor, device: Target, index: int) -> Descriptor:
    cudnn().forget_words()  # errors about engines that a heuristic tried
    engine = Descriptor(Kind.ENGINE).set(Attribute.ENGINE_GRAPH, graph).set(Attribute.ENGINE_INDEX, index)
    return device.of_engine(engine).finalize()


def _with_knobs(engine: Descriptor, knobs: Knobs) -> Descriptor:
    config = Descriptor(Kind.ENGINE_CONFIG).set(Attribute.CONFIG_ENGINE, engine)
    choices = [
        Descriptor(Kind.KNOB_CHOICE).set(Attribute.KNOB_TYPE, knob).set(Attribute.KNOB_VALUE, value).finalize()
        for knob, value in knobs
    ]
    return (config.set(Attribute.CONFIG_KNOB_CHOICES, *choices) if choices else config).finalize()


def _range(info: Descriptor) -> range:
    names = (Attribute.KNOB_INFO_LEAST, Attribute.KNOB_INFO_MOST, Attribute.KNOB_INFO_STEP)
    least, most, step = (int(info.get(name)[0]) for name in names)
    return range(least, most + 1, max(step, 1))


def _describe(config: Descriptor, blank: Blank, choices: Blank) -> Engine:
    (engine,) = config.fill(Attribute.CONFIG_ENGINE, blank)
    chosen = config.fill(Attribute.CONFIG_KNOB_CHOICES, choices)
    knobs = ((*choice.get(Attribute.KNOB_TYPE), *choice.get(Attribute.KNOB_VALUE)) for choice in chosen)
    (index,) = engine.get(Attribute.ENGINE_INDEX)
    return Engine(index, tuple(sorted(knobs)), *_notes(engine), config)


def _notes(engine: Descriptor) -> tuple[frozenset[NumericalNote], bool]:
    """cuDNN's notes about an engine's arithmetic, and whether it compiles."""
    notes = engine.get(Attribute.ENGINE_NUMERICAL_NOTES, len(NumericalNote))
    behavior = engine.get(Attribute.ENGINE_BEHAVIOR_NOTES, len(BehaviorNote))
    return frozenset(map(NumericalNote, notes)), BehaviorNote.RUNTIME_COMPILATION in behavior
