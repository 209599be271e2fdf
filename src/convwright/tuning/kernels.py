"""The kernels that one search compiles: which, in what order, and how long it waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from math import inf
from operator import itemgetter
from time import perf_counter

from convwright.backends.registry import backend, backends
from convwright.core.candidate import Candidate
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Compiles
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.chains import chains
from convwright.tuning.compile_queue import NO_THREAD, Priority, compile_queue, is_compiled_apart
from convwright.tuning.search import Search

# Numbers of kernels for a search that is too short to wait for compilers: in a call, in a series, and alone.
_IN_CALL, IN_SERIES, _ALONE = 4, 3, 8
# A search with a smaller budget does not wait for compilers.
_LONG_US = 1e6
# Shares of a long search's budget: when the last compilation starts, and the longest waits for more and for the first.
BEGUN, WAITED, WAITED_FOR_ONE = 0.55, 0.6, 0.7
# A short search waits up to this long before its budget starts.
WAITED_S = 10.0
# _OWN kernels of the problem itself come before one of each inner problem, and so on in turns. At most _MOST_INSIDE of
# an inner problem.
_OWN, _MOST_INSIDE = 2, 8
BEING_COMPILED = "is being compiled in the background, and will be tried at a later call"
NOT_WANTED = "was not compiled: others promised more"
TOO_LATE = "was not compiled in time"


def is_for_now(reason: str) -> bool:
    """Whether a missing kernel may be ready at a later call."""
    return reason == BEING_COMPILED or reason.startswith(NO_THREAD)


class SearchKernels:
    """The kernels that a search wants, and which are ready."""

    def __init__(self, search: Search, wanted: Sequence[Candidate], *, is_long: bool) -> None:
        self.wanted = dict.fromkeys(wanted)
        self._search, self._is_long = search, is_long
        self._reason: str | None = None
        self._seen = 0

    def is_built(self, candidate: Candidate) -> bool:
        """Whether a candidate can be built at once."""
        return self._came(candidate.leaf) == ""

    def of(self, problem: Problem) -> list[Candidate]:
        """The kernels compiled for a problem, which may be inside a rewrite."""
        return [kernel for kernel in self.wanted if kernel.problem == problem]

    def reason_to_pass(self, candidate: Candidate) -> str | None:
        """Why a candidate cannot be built now; None if it is compiled."""
        came = self._came(candidate.leaf)
        if came is None and candidate.leaf not in self.wanted:
            return NOT_WANTED
        return (self._reason or (TOO_LATE if self._is_long else BEING_COMPILED)) if came is None else came or None

    def want(self, then: Callable[[], None] | None) -> None:
        """Compile the kernels. For a search inside a call that is in the background, and ``then`` repeats the
        search."""
        search = self._search
        self._reason = compile_queue().want(
            self.wanted, search.device, Priority.SEARCH if then is None else Priority.BACKGROUND,
            loads=not search.isolate, until_s=self._moment_s(BEGUN) if self._is_long else inf,
            subject=search.problem, then=then,
        )  # fmt: skip

    def _moment_s(self, share: float) -> float:
        """The moment when this share of the budget will be spent."""
        budget = self._search.budget
        return perf_counter() + max(budget.left_us - (1 - share) * budget.total_us, 0.0) / 1e6

    def wait(self) -> bool:
        """Wait for another kernel within the time of a long search; whether one came."""
        search, queue = self._search, compile_queue()
        if not self._is_long or self._reason is not None:
            return False
        before = self._seen

        def more() -> bool:
            self._seen = self._count()
            return self._seen > before or not any(map(self._may_come, self.wanted))

        search.progress("compiling", before, len(self.wanted))
        share = WAITED if any(map(self.is_built, self.wanted)) else WAITED_FOR_ONE
        return queue.wait(more, self._moment_s(share)) and self._seen > before

    def wait_for_all(self) -> None:
        """Wait for all kernels, up to the limit of a short search."""
        until_s, of = perf_counter() + WAITED_S, len(self.wanted)
        while self.wanted and self._reason is None:
            came = self._count()
            self._search.progress("compiling", came, of)
            if came == of or not compile_queue().wait(lambda came=came: self._count() > came, until_s):  # type: ignore[misc]
                return

    def _count(self) -> int:
        return sum(self._came(kernel) is not None for kernel in self.wanted)

    def _may_come(self, kernel: Candidate) -> bool:
        return self._came(kernel) is None and compile_queue().is_wanted(kernel, self._search.device)

    def _came(self, leaf: Candidate) -> str | None:
        return compile_queue().came(leaf, self._search.device)


def is_long(budget: Budget) -> bool:
    """Whether a search has time to wait for compilers."""
    return budget.total_us >= _LONG_US


@contextmanager
def begun_early(search: Search) -> Iterator[None]:
    """Start compilers, and inside compile the first kernels of a long search while this process loads libraries. If the
    search fails, its remaining kernels are dropped."""
    queue, first = compile_queue(), list[Candidate]()
    with search.budget.paused():
        queue.start(search.device)
        if is_long(search.budget):
            first = likely(search)[: queue.most]
            queue.want(first, search.device, Priority.SEARCH, loads=False)
    try:
        yield
    except BaseException:
        queue.drop(first, search.device)
        raise


@contextmanager
def compiling(
    search: Search,
    direct: Sequence[Candidate],
    most_chains: int | None,
    *,
    afresh: bool,
    then: Callable[[], None] | None,
) -> Iterator[SearchKernels]:
    """Inside, kernels are compiled for a search. A search inside a call waits for none, and ``then`` repeats it."""
    has_time, queue = then is None and is_long(search.budget), compile_queue()
    with queue.timing():
        if has_time:
            wanted = worth_compiling(search, direct, most_chains)
        else:
            with search.budget.paused():
                wanted = _for_a_short_search(search, direct, most_chains, afresh=afresh, in_call=then is not None)
        kernels = SearchKernels(search, wanted, is_long=has_time)
        try:
            with search.budget.paused():  # loading is not charged to this problem
                kernels.want(then)
                if then is None and not has_time:
                    kernels.wait_for_all()
            yield kernels
        finally:
            if then is None:
                queue.drop(wanted, search.device)


def _for_a_short_search(
    search: Search, direct: Sequence[Candidate], most_chains: int | None, *, afresh: bool, in_call: bool
) -> list[Candidate]:
    """If the search is made ``afresh``, the previously fastest kernels; then the most promising of the problem itself,
    or of inner problems if it has none."""
    own, queue = promising(search, direct) or worth_compiling(search, direct, most_chains), compile_queue()
    before = _fastest_before(search, direct) if afresh else []
    begun = [] if in_call else [kernel for kernel in own if queue.is_wanted(kernel, search.device)]
    ranked = list(dict.fromkeys([*before, *begun, *own]))
    if in_call or begun:
        return ranked[: _IN_CALL if in_call else max(IN_SERIES, len(begun))]
    return ranked[: max(_IN_CALL, min(_ALONE, queue.most))]


def worth_compiling(search: Search, direct: Iterable[Candidate], most_chains: int | None = None) -> list[Candidate]:
    """The kernels of a long search: the first few of the problem itself and one of each inner problem, then the next
    few and the next of each, and so on.

    Parts of a split batch are left out: they save only workspace, and our kernels need hardly any.
    """
    own = promising(search, direct)
    inner = [chain.inner for chain in chains(search.problem, search.device)[0][:most_chains] if not chain.splits]
    inside = [_inside(search, each, own)[:_MOST_INSIDE] for each in inner]
    queues = [*(own[place::_OWN] for place in range(_OWN)), *inside]
    return list(dict.fromkeys(kernel for turn in zip_longest(*queues) for kernel in turn if kernel is not None))


def promising(search: Search, listed: Iterable[Candidate]) -> list[Candidate]:
    """Kernels to compile: allowed, not failed before, most promising first."""
    kernels = [c for c in listed if c.compiles and is_compiled_apart(c) and listing.objection(c, search.policy) is None]
    if not kernels:
        return []
    known = search.recall().known(kernels)
    failed = {id_ for id_, finding in known.items() if finding.failure is not None}
    return search.ranked([kernel for kernel in kernels if kernel.id not in failed])


def likely(search: Search) -> list[Candidate]:
    """The most promising kernels of the problem itself. Asks no library, so they can compile while libraries load."""
    members = (member for member in backends(search.problem.kind) if isinstance(member, Compiles))
    offers = (offer for each in members for offer in each.candidates(search.problem, search.device, search.policy))
    return promising(search, listing.candidates(offers))


def _fastest_before(search: Search, direct: Sequence[Candidate]) -> list[Candidate]:
    """Kernels with times in the store, fastest first."""
    recall = search.recall()
    found = recall.known([*direct, *recall.beyond(direct)]).values()
    timed = [(each.measurement.device_us.value, each.candidate.leaf) for each in found if each.measurement is not None]
    return [leaf for _, leaf in sorted(timed, key=itemgetter(0)) if leaf.compiles and is_compiled_apart(leaf)]


def _inside(search: Search, inner: Problem, own: Sequence[Candidate]) -> list[Candidate]:
    """The most promising kernels of an inner problem. If that gains little, only algorithms that the problem itself
    does not have, which need no library."""
    within = replace(search, problem=inner)
    if not _gains_little(inner, search.problem, own):
        return promising(within, listing.candidates(search.offers(inner)))
    known, families = {kernel.algorithm for kernel in own}, {kernel.backend: None for kernel in own}
    members = [backend(name, inner.kind) for name in families]
    offers = [offer for member in members for offer in member.candidates(inner, search.device, search.policy)]
    return [kernel for kernel in promising(within, listing.candidates(offers)) if kernel.algorithm not in known]


def _gains_little(inner: Problem, problem: Problem, own: Sequence[Candidate]) -> bool:
    """Whether kernels already compute the problem with its epilogue and channels last: then the inner problem has the
    same kernels with less fused, or in NCHW."""
    if not (isinstance(problem, ConvProblem) and isinstance(inner, ConvProblem)):
        return False
    in_planes = problem.x.layout is Layout.NHWC and inner.x.layout is Layout.NCHW
    return bool(own) and (in_planes or inner.epilogue != problem.epilogue)
