"""Candidates as rows of numbers: what physics says, what tiles come to, and that one row is like any other."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.kinds.text import parse
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BadInput
from convwright.prediction.features import PARTS, check_names, features, vocabulary
from convwright.prediction.problem_features import PROBLEM_FEATURES, problem_features
from convwright.rewrites import rewrite
from prediction.made_observations import DEVICE, candidates

PROBLEM = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dt:fp16")
TILE = (("bm", 128), ("bn", 128), ("bk", 64), ("parts", 2))
LEAF = Candidate(PROBLEM, "triton", "implicit-gemm", TILE, Arithmetic.FP16_ACC32, 0, True, Source.RULE)


def column(candidate: Candidate, name: str, device: DeviceFacts = DEVICE) -> float:
    found = features([candidate], device, vocabulary([candidate], fewest=1))
    return float(found.rows[0, found.names.index(name)])


def part(candidate: Candidate, name: str) -> float:
    return float(features([candidate], DEVICE).parts[0, PARTS.index(name)])


def test_tiles_and_waves_are_counted() -> None:
    """6,272 pixels are 49 tiles of 128, 256 channels are 2, and the sum is in 2 parts: 196 blocks on 132 units."""
    assert 2 ** column(LEAF, "log blocks") == pytest.approx(196)
    assert 2 ** column(LEAF, "log waves") == pytest.approx(196 / 132)
    assert column(LEAF, "last wave idle") == pytest.approx(1 - (196 / 132) / 2)
    assert column(LEAF, "tiles idle") == 0
    assert 2 ** column(LEAF, "log steps") == pytest.approx(18)  # of 9 * 256 / 64, half of them in each part


def test_idle_elements_of_tiles_are_counted() -> None:
    narrow = replace(LEAF, problem=ConvProblem.parse("mb32ic256ih14oc96kh3ph1 dt:fp16"))
    assert column(narrow, "tiles idle") == pytest.approx(0.25)


def test_physics_is_the_device_at_its_peak() -> None:
    peak, bandwidth = DEVICE.peak(Arithmetic.FP16_ACC32), DEVICE.bandwidth_bytes_per_us
    assert peak is not None
    assert bandwidth is not None
    assert part(LEAF, "products µs") == pytest.approx(PROBLEM.flops / peak)
    assert part(LEAF, "operands µs") == pytest.approx(PROBLEM.bytes / bandwidth)
    three = replace(LEAF, arithmetic=Arithmetic.FP16X3)
    assert part(three, "products µs") == pytest.approx(3 * part(LEAF, "products µs"))
    with_scratch = replace(LEAF, workspace_bytes=4_800_000)
    assert part(with_scratch, "scratch µs") == pytest.approx(2)


def test_an_estimate_of_the_backend_is_the_physical_estimate() -> None:
    found = features([replace(LEAF, estimated_us=50.0), LEAF], DEVICE)
    assert found.physics_us[0] == 50
    assert found.physics_us[1] < 20


def test_a_rewrite_adds_its_copies_and_launches() -> None:
    step, arguments = rewrite("relayout"), (("layout", "nhwc"),)
    problem = PROBLEM.in_layout(PROBLEM.x.layout)
    inner = step.inner(problem, arguments)
    wrapped = step.wrap(problem, arguments, replace(LEAF, problem=inner))
    plain, moved = features([wrapped.leaf], DEVICE), features([wrapped], DEVICE)
    assert part(wrapped, "copies µs") == pytest.approx(step.moved_bytes(problem, arguments) / 4.8e6)
    assert moved.physics_us[0] > plain.physics_us[0]
    assert column(wrapped, "rewrite relayout") == 1
    assert column(wrapped, "rewrites") == 1


@pytest.mark.parametrize(
    "text",
    [
        "ic8ih9oc8kh3 dir:backward_data", "ic8ih9oc8kh3 dir:backward_weight", "g8ic8iw9oc8kw3", "linear mb4ic8oc16",
        'pointwise "relu(a + b)" mb2ic4ih8', 'pointwise "mean(a)" mb2ic4ih8 row:hw y:nc', "copy mb2ic4ih8 nchw->nhwc",
        "pool max mb2ic4ih8 kh3sh2ph1", "resize linear mb2ic4ih8 oh16",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["h200", "a GPU of which nothing is known", "a CPU"])
def test_every_kind_of_problem_has_finite_features_on_any_device(text: str, name: str) -> None:
    unknown = DeviceFacts(name, "cpu" if "CPU" in name else "cuda", "any", threads=4 if "CPU" in name else None)
    device = profile(name) if name == "h200" else unknown
    leaf = Candidate(parse(text), "torch", "default", (), Arithmetic.FP32, None, True, Source.RULE)
    found = features([leaf], device, vocabulary([leaf], fewest=1))
    assert np.isfinite(found.rows).all()
    assert found.physics_us[0] > 0
    assert found.known[0]
    assert len(problem_features(leaf.problem).numbers) == len(PROBLEM_FEATURES)


def test_kinds_differ_in_their_features() -> None:
    texts = ("ic8ih9oc8kh3", "ic8ih9oc8kh3 dir:backward_data", "linear mb4ic8oc16", "pool avg mb2ic4ih8 kh3")
    assert len({problem_features(parse(text)).numbers[:7] for text in texts}) == len(texts)


def test_an_algorithm_without_a_name_is_not_known() -> None:
    listed = candidates(PROBLEM)
    found = features([*listed, LEAF], DEVICE, vocabulary(listed, fewest=1))
    assert found.known.tolist() == [True] * len(listed) + [False]


def test_one_by_one_and_together_are_the_same() -> None:
    listed = [LEAF, *candidates(PROBLEM)]
    names = vocabulary(listed, fewest=1)
    together = features(listed, DEVICE, names)
    for row, each in enumerate(listed):
        alone = features([each], DEVICE, names)
        np.testing.assert_array_equal(together.rows[row], alone.rows[0])
        assert together.physics_us[row] == alone.physics_us[0]


def test_names_of_another_version_are_refused() -> None:
    names = vocabulary([LEAF], fewest=1)
    check_names(names, "mine.npz")
    with pytest.raises(BadInput, match=r"mine\.npz was learned by another version, whose features differ \(log rows\)"):
        check_names([name for name in names if name != "log rows"], "mine.npz")


def test_thousands_take_less_than_a_second() -> None:
    listed = [each for mb in range(1, 501) for each in candidates(ConvProblem.parse(f"mb{mb}ic64ih28oc64kh3ph1"))]
    begun = process_time()
    assert len(features(listed, DEVICE).rows) == 2000
    assert process_time() - begun < 1
