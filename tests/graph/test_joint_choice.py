"""The joint choice of ways: what is found exactly is held against all plans there are, on networks small enough."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import product
from random import Random
from time import perf_counter

import pytest

from convwright.errors import BadInput, Refused
from convwright.graph.choice import ChoiceProblem, Copy, JointChoice, Option, Place
from convwright.graph.greedy_choice import greedy
from convwright.graph.joint_choice import solve, uniform

Choose = Callable[[ChoiceProblem], JointChoice]
SEEDS = range(60)


def way(name: str, covers: str, reads: str, writes: str, cost: float) -> Option:
    """``covers`` such as "a b", places such as "x:nchw y:nhwc"."""
    return Option(name, frozenset(covers.split()), places(reads), places(writes), cost)


def places(text: str) -> tuple[Place, ...]:
    return tuple((value, state) for value, state in (each.split(":") for each in text.split()))


def problem(nodes: str, options: list[Option], copies: list[Copy], *, given: str, wanted: str) -> ChoiceProblem:
    return ChoiceProblem(tuple(nodes.split()), tuple(options), tuple(copies), places(given), places(wanted))


def names(found: JointChoice | None) -> list[str]:
    assert found is not None
    return [option.name for option in found.options]


def small_network(seed: int, *, copied: float = 0.8) -> ChoiceProblem:
    """Of up to 7 nodes, all of which can be computed in state "a"; some copies may be impossible."""
    random = Random(seed)
    count, states = random.randint(1, 7), "abc"[: random.randint(1, 3)]
    reads = [sorted({random.randint(max(-1, i - 3), i - 1) for _ in range(random.randint(1, 2))}) for i in range(count)]

    def option(kind: str, nodes: list[int], written: list[int], coming: str, going: str) -> Option:
        read = {value for node in nodes for value in reads[node]} - set(nodes)
        name = f"{kind} {coming}{going}{random.random()}"
        cost = random.randint(1, 40) / 4
        sources = tuple((f"v{value}", coming) for value in sorted(read))
        targets = tuple((f"v{value}", going) for value in written)
        return Option(name, frozenset(f"n{node}" for node in nodes), sources, targets, cost)

    options = []
    for node in range(count):
        for coming, going in product(states, states):
            if (coming, going) == ("a", "a") or random.random() < 0.5:
                options.append(option("bare", [node], [node], coming, going))
        if random.random() < 0.2:  # it reads, or writes, two states at once
            one = option("both", [node], [node], "a", "a")
            if random.random() < 0.5:
                options.append(replace(one, reads=(*one.reads, (one.reads[0][0], states[-1]))))
            else:
                options.append(replace(one, writes=(*one.writes, (f"v{node}", states[-1]))))
    for _ in range(random.randint(0, 2 * count) if count > 1 else 0):  # groups, of which some cannot be ordered
        nodes = sorted(random.sample(range(count), random.randint(2, min(3, count))))
        written = nodes if random.random() < 0.5 else nodes[-1:]
        options.append(option("group", nodes, written, random.choice(states), random.choice(states)))
    copies = [
        Copy(f"v{value}", source, target, random.randint(0, 12) / 4)
        for value, source, target in product(range(-1, count), states, states)
        if source != target and random.random() < copied
    ]
    wanted = {f"v{count - 1}", f"v{random.randrange(count)}"}
    ends = (("v-1", "a"),), tuple((value, "a") for value in sorted(wanted))
    return ChoiceProblem(tuple(f"n{i}" for i in range(count)), tuple(options), tuple(copies), *ends)


def network(count: int, states: int, seed: int, *, costs: int = 1000) -> ChoiceProblem:
    """A chain with residual branches, in which pairs of nodes may be fused. Of few ``costs`` many plans are as good."""
    random = Random(seed)
    all_states = [f"s{i}" for i in range(states)]
    reads = [[f"v{i - 1}"] + ([f"v{i - random.randint(2, 6)}"] if i % 4 == 3 and i > 6 else []) for i in range(count)]
    read_by = [sum(f"v{i}" in each for each in reads) for i in range(count)]

    def cost(least: float, most: float) -> float:
        return least + (most - least) * random.randint(0, costs) / costs

    def option(nodes: list[int], state: str, target: str, within: float) -> Option:
        inner = {f"v{node}" for node in nodes[:-1]}
        read = dict.fromkeys(value for node in nodes for value in reads[node] if value not in inner)
        sources = tuple((value, state) for value in read)
        name, covers = f"{nodes} {state} {target} {len(options)}", frozenset(f"n{node}" for node in nodes)
        return Option(name, covers, sources, ((f"v{nodes[-1]}", target),), cost(5.0, within))

    options: list[Option] = []
    for i in range(count):
        for state, target in product(all_states, all_states):
            if state == target or random.random() < 0.3:
                options.extend(option([i], state, target, 50.0) for _ in range(2))
            if state == target and i and read_by[i - 1] == 1 and random.random() < 0.5:
                options.append(option([i - 1, i], state, target, 80.0))
    copies = tuple(
        Copy(f"v{i}", source, target, cost(1.0, 12.0))
        for i, source, target in product(range(-1, count), all_states, all_states)
        if source != target
    )
    ends = (("v-1", "s0"),), ((f"v{count - 1}", "s0"),)
    return ChoiceProblem(tuple(f"n{i}" for i in range(count)), tuple(options), copies, *ends)


def covers(left: frozenset[str], options: tuple[Option, ...]) -> Iterator[tuple[Option, ...]]:
    if not left:
        yield ()
        return
    node = min(left)
    for option in options:
        if node in option.covers and option.covers <= left:
            for rest in covers(left - option.covers, options):
                yield (option, *rest)


def can_be_ordered(options: tuple[Option, ...]) -> bool:
    writers = {value: option for option in options for value, _ in option.writes}
    before = {option: [writers[value] for value, _ in option.reads if value in writers] for option in options}
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return False
    return True


def all_costs(asked: ChoiceProblem) -> Iterator[float]:
    """Of every plan there is: each exact cover, with each set of copies that brings what is read and wanted."""
    for options in covers(frozenset(asked.nodes), asked.options):
        if not can_be_ordered(options):
            continue
        there = {*asked.given, *(place for option in options for place in option.writes)}
        needed = {*asked.wanted, *(place for option in options for place in option.reads)} - there
        possible = [
            [copy for copy in asked.copies if (copy.value, copy.target) == place and (copy.value, copy.source) in there]
            for place in needed
        ]
        for copies in product(*possible):
            yield sum(option.cost for option in options) + sum(copy.cost for copy in copies)


def assert_runs(asked: ChoiceProblem, found: JointChoice) -> None:
    assert sorted(node for option in found.options for node in option.covers) == sorted(asked.nodes)
    assert can_be_ordered(found.options)
    there = {*asked.given, *(place for option in found.options for place in option.writes)}
    assert {(copy.value, copy.source) for copy in found.copies} <= there
    there.update((copy.value, copy.target) for copy in found.copies)
    assert there.issuperset(asked.wanted)
    assert all(there.issuperset(option.reads) for option in found.options)
    assert found.cost == pytest.approx(sum(each.cost for each in (*found.options, *found.copies)), abs=1e-9)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("copied", [1.0, 0.5])
def test_no_plan_is_cheaper(copied: float) -> None:
    for seed in SEEDS[:4]:
        asked = small_network(seed, copied=copied)
        found = solve(asked)
        assert_runs(asked, found)
        assert found.cost == pytest.approx(min(all_costs(asked)), abs=1e-9), seed


@pytest.mark.parametrize("copied", [1.0, 0.0])
def test_going_node_by_node_ends_in_a_plan_that_is_no_better(copied: float) -> None:
    worse = 0
    for seed in SEEDS:
        asked = small_network(seed, copied=copied)
        found, best = greedy(asked), solve(asked)
        assert_runs(asked, found)
        assert found.cost >= best.cost - 1e-9, seed
        worse += found.cost > best.cost + 1e-9
    assert worse > 10


def test_one_state_for_all_is_no_better() -> None:
    worse = 0
    for seed in SEEDS:
        asked = small_network(seed)
        found, best = uniform(asked), solve(asked)
        assert found is not None  # all can be computed in state "a"
        assert_runs(asked, found)
        assert found.cost >= best.cost - 1e-9, seed
        worse += found.cost > best.cost + 1e-9
    assert worse > 10


def two_readers(*, gain: float, later: float | None = None) -> ChoiceProblem:
    """``b`` and ``c`` read what ``a`` writes, and gain in another state; ``c`` as much unless said."""
    gains = {"b": gain, "c": gain if later is None else later}
    options = [way("a", "a", "x:nchw", "a:nchw", 5.0)]
    for node, state in product("bc", ("nchw", "nhwc")):
        cost = 5.0 - gains[node] * (state == "nhwc")
        options.append(way(f"{node} {state}", node, f"a:{state}", f"{node}:nchw", cost))
    return problem("a b c", options, [Copy("a", "nchw", "nhwc", 3.0)], given="x:nchw", wanted="b:nchw c:nchw")


def test_two_readers_pay_a_copy_once() -> None:
    found = solve(two_readers(gain=2.0))
    assert names(found) == ["a", "b nhwc", "c nhwc"]
    assert (found.copies, found.cost) == ((Copy("a", "nchw", "nhwc", 3.0),), 5.0 + 3.0 + 3.0 + 3.0)
    assert names(solve(two_readers(gain=1.0))) == ["a", "b nchw", "c nchw"]


def test_going_node_by_node_sees_no_copy_that_pays_later() -> None:
    assert names(greedy(two_readers(gain=2.0))) == ["a", "b nchw", "c nchw"]
    assert names(greedy(two_readers(gain=4.0))) == ["a", "b nhwc", "c nhwc"]
    assert names(greedy(two_readers(gain=2.0, later=4.0))) == ["a", "b nchw", "c nhwc"]


def test_going_node_by_node_pays_a_copy_once() -> None:
    found = greedy(two_readers(gain=4.0, later=1.0))
    assert (names(found), found.cost) == (["a", "b nhwc", "c nhwc"], 5.0 + 3.0 + 1.0 + 4.0)


@pytest.mark.parametrize("choose", [solve, greedy, uniform])
def test_a_copy_starts_from_what_is_written_not_from_a_copy(choose: Choose) -> None:
    copies = [Copy("x", "s", "t", 1.0), Copy("x", "t", "u", 1.0), Copy("x", "s", "u", 9.0)]
    found = choose(problem("a", [way("a", "a", "x:u", "a:u", 1.0)], copies, given="x:s", wanted="a:u"))
    assert found.copies == (copies[2],)


@pytest.mark.parametrize("choose", [solve, greedy])
def test_what_a_copy_made_is_not_copied_further(choose: Choose) -> None:
    options = [
        way("a", "a", "x:t", "a:s", 1.0),
        way("b slow", "b", "x:s", "b:s", 5.0),
        way("b fast", "b", "x:u", "b:s", 1.0),
    ]
    copies = [Copy("x", "s", "t", 1.0), Copy("x", "t", "u", 1.0)]
    assert names(choose(problem("a b", options, copies, given="x:s", wanted="a:s b:s"))) == ["a", "b slow"]


@pytest.mark.parametrize("choose", [solve, greedy, uniform])
def test_of_two_copies_the_cheaper_is_made(choose: Choose) -> None:
    copies = [Copy("x", "s", "u", 5.0), Copy("x", "t", "u", 3.0)]
    found = choose(problem("a", [way("a", "a", "x:u", "a:u", 1.0)], copies, given="x:s x:t", wanted="a:u"))
    assert (found.copies, found.cost) == ((copies[1],), 4.0)


@pytest.mark.parametrize(("fused", "expected"), [(7.9, ["conv+relu"]), (8.1, ["conv", "relu"])])
def test_nodes_are_fused_where_that_is_cheaper(fused: float, expected: list[str]) -> None:
    options = [
        way("conv", "conv", "x:s", "y:s", 6.0),
        way("conv+relu", "conv relu", "x:s", "z:s", fused),
        way("relu", "relu", "y:s", "z:s", 2.0),
    ]
    assert names(solve(problem("conv relu", options, [], given="x:s", wanted="z:s"))) == expected


@pytest.mark.parametrize("choose", [solve, greedy])
def test_a_value_that_someone_else_reads_is_not_fused_away(choose: Choose) -> None:
    options = [
        way("a", "a", "x:s", "a:s", 6.0),
        way("a+b", "a b", "x:s", "b:s", 1.0),
        way("b", "b", "a:s", "b:s", 6.0),
        way("c", "c", "a:s", "c:s", 6.0),
    ]
    assert names(choose(problem("a b c", options, [], given="x:s", wanted="b:s c:s"))) == ["a", "b", "c"]


def test_options_that_wait_for_one_another_are_not_chosen_together() -> None:
    options = [
        *(way(n, n, f"{r}:s", f"{n}:s", 5.0) for n, r in (("a", "x"), ("b", "a"), ("c", "x"), ("d", "c"))),
        way("a+d", "a d", "x:s c:s", "a:s d:s", 3.0),
        way("b+c", "b c", "x:s a:s", "b:s c:s", 4.0),
    ]
    found = solve(problem("a b c d", options, [], given="x:s", wanted="b:s d:s"))
    assert (names(found), found.cost) == (["b", "c", "a+d"], 13.0)


def test_what_is_wanted_lies_as_it_is_wanted() -> None:
    options = [way("fast", "a", "x:s", "a:t", 1.0), way("slow", "a", "x:s", "a:s", 4.0)]
    copies = [Copy("a", "t", "s", 2.0)]
    found = solve(problem("a", options, copies, given="x:s", wanted="a:s"))
    assert (names(found), found.copies, found.cost) == (["fast"], tuple(copies), 3.0)
    assert names(solve(problem("a", options, [], given="x:s", wanted="a:s"))) == ["slow"]
    assert names(greedy(problem("a", options, [], given="x:s", wanted="a:s"))) == ["slow"]
    both = solve(problem("a", options, copies, given="x:s", wanted="a:s a:t"))
    assert (names(both), both.cost) == (["fast"], 3.0)


def chain_of_two(*, weights: str = "") -> ChoiceProblem:
    """``a`` is fast in state t, ``b`` in state s, and a copy costs 1."""
    costs = {("a", "s"): 9.0, ("a", "t"): 2.0, ("b", "s"): 2.0, ("b", "t"): 8.0}
    read = {"a": "x", "b": "a"}
    options = [way(f"{n} {s}", n, f"{read[n]}:{s} {weights}", f"{n}:{s}", cost) for (n, s), cost in costs.items()]
    copies = [Copy(v, s, t, 1.0) for v in "xab" for s, t in ("st", "ts")]
    return problem("a b", options, copies, given=f"x:s {weights}", wanted="b:s")


def test_one_state_for_all_copies_at_the_ends_only() -> None:
    asked = chain_of_two()
    assert (names(solve(asked)), solve(asked).cost) == (["a t", "b s"], 6.0)
    found = uniform(asked)
    assert (names(found), found and found.cost) == (["a s", "b s"], 11.0)
    cheaper = replace(asked, options=tuple(replace(o, cost=4.0) if o.name == "b t" else o for o in asked.options))
    found = uniform(cheaper)
    assert found is not None
    assert (names(found), found.cost) == (["a t", "b t"], 8.0)
    assert [(copy.value, copy.source, copy.target) for copy in found.copies] == [("x", "s", "t"), ("b", "t", "s")]


def test_weights_that_do_not_know_the_state_lie_as_they_like() -> None:
    asked = chain_of_two(weights="w:packed")
    other = way("a plain", "a", "x:s w:plain", "a:s", 50.0)
    assert names(uniform(replace(asked, options=(*asked.options, other)))) == ["a s", "b s"]


def test_no_state_may_serve_all() -> None:
    asked = chain_of_two()
    apart = tuple(option for option in asked.options if option.name in ("a t", "b s"))
    assert uniform(replace(asked, options=apart)) is None
    assert names(solve(replace(asked, options=apart))) == ["a t", "b s"]


def test_where_each_value_knows_one_state_that_is_it() -> None:
    asked = problem("a", [way("a", "a", "x:s", "a:t", 1.0)], [], given="x:s", wanted="a:t")
    assert names(uniform(asked)) == ["a"]
    assert uniform(replace(asked, options=())) is None


def test_equal_findings_give_equal_plans_in_any_order() -> None:
    for seed in range(5):
        asked = network(30, 3, seed, costs=2)
        found, stepwise, alike = solve(asked), greedy(asked), uniform(asked)
        assert alike is not None
        shuffled = replace(
            asked,
            options=tuple(Random(seed).sample(asked.options, len(asked.options))),
            copies=tuple(Random(seed).sample(asked.copies, len(asked.copies))),
        )
        for first, second in ((found, solve(shuffled)), (stepwise, greedy(shuffled)), (alike, uniform(shuffled))):
            assert second is not None
            assert set(first.options) == set(second.options)
            assert set(first.copies) == set(second.copies)
            assert first.cost == second.cost
        assert list(found.options) == [option for option in asked.options if option in found.options]


def test_of_equal_options_the_first_name_is_taken() -> None:
    options = [way(name, "a", "x:s", "a:s", 1.0) for name in ("c", "a", "b")]
    asked = problem("a", options, [], given="x:s", wanted="a:s")
    assert names(solve(asked)) == names(greedy(asked)) == ["a"]


def test_nothing_to_choose_costs_nothing() -> None:
    empty = problem("", [], [], given="x:s", wanted="x:s")
    assert solve(empty) == greedy(empty) == uniform(empty) == JointChoice((), (), 0.0)
    copied = problem("", [], [Copy("x", "s", "t", 2.0)], given="x:s", wanted="x:t")
    assert solve(copied) == greedy(copied) == JointChoice((), copied.copies, 2.0)


@pytest.mark.parametrize("choose", [solve, greedy])
def test_a_node_without_a_way_is_named(choose: Choose) -> None:
    asked = problem("a b c", [way("a", "a", "x:s", "a:s", 1.0)], [], given="x:s", wanted="c:s")
    with pytest.raises(Refused, match=r"^no way computes b, a node of the network$"):
        choose(asked)


@pytest.mark.parametrize("choose", [solve, greedy])
@pytest.mark.parametrize(
    "asked",
    [
        problem("a", [way("a", "a", "x:t", "a:s", 1.0)], [], given="x:s", wanted="a:s"),
        problem("a", [way("a", "a", "x:s", "a:s", 1.0)], [], given="x:s", wanted="a:t"),
        problem("a b c", [way(c, c, "x:s", "c:s", 1.0) for c in ("a b", "b c")], [], given="x:s", wanted="c:s"),
        problem("", [], [], given="x:s", wanted="x:t"),
    ],
    ids=["read", "wanted", "overlap", "empty"],
)
def test_a_network_that_nothing_covers_is_refused(choose: Choose, asked: ChoiceProblem) -> None:
    with pytest.raises(Refused, match=r"^no set of ways covers the network"):
        choose(asked)


@pytest.mark.parametrize(
    ("cost", "covers"), [(float("nan"), "a"), (float("inf"), "a"), (-1.0, "a"), (1.0, "z"), (1.0, "")]
)
@pytest.mark.parametrize("choose", [solve, greedy, uniform])
def test_an_option_that_cannot_be_is_bad_input(choose: Choose, cost: float, covers: str) -> None:
    with pytest.raises(BadInput, match=r"^the way odd (costs|covers) \S+( us)?; expected "):
        choose(problem("a", [way("odd", covers, "x:s", "a:s", cost)], [], given="x:s", wanted="a:s"))


def test_a_copy_without_a_cost_is_bad_input() -> None:
    asked = problem("", [], [Copy("x", "s", "t", float("nan"))], given="x:s", wanted="x:s")
    with pytest.raises(BadInput, match=r"^the copy of x from s to t costs nan us; expected "):
        solve(asked)


@pytest.mark.parametrize("missing", [("scipy", "scipy.optimize", "scipy.sparse"), ("scipy.optimize",)])
def test_without_scipy_the_sentence_says_what_to_install(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    asked = two_readers(gain=2.0)
    for choose in (solve, uniform):
        with pytest.raises(Refused) as raised:
            choose(asked)
        assert str(raised.value) == "planning a network needs scipy: pip install 'convwright[engine]'"
    assert names(greedy(asked)) == ["a", "b nchw", "c nchw"]


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(("count", "seconds"), [(200, 20.0), (1000, 150.0)])
def test_large_networks_are_solved_in_time(count: int, seconds: float) -> None:
    asked = network(count, 6, seed=1)
    begin = perf_counter()
    found = solve(asked)
    took = perf_counter() - begin
    assert_runs(asked, found)
    assert found.cost < greedy(asked).cost
    alike = uniform(asked)
    assert alike is not None
    assert found.cost < alike.cost
    assert took < seconds
