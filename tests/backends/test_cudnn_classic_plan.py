import gc
from ctypes import c_double, c_float

import pytest
import torch

from backends.fake_cudnn import GPU, FakeCudnn, one
from convwright.backends.cudnn.classic import listing as classic
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError

PROBLEM = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3))


@pytest.fixture
def fake(monkeypatch):
    return FakeCudnn(monkeypatch)


def run(fake, problem, name, *, bias=None, residual=None):
    """Build and run on the CPU's memory; returns the plan and the arguments of cuDNN's last call, tensors included."""
    first, second = (torch.empty(problem.operands[role].shape) for role in problem.direction.operands)
    out, workspace = torch.empty(problem.output.shape), torch.empty(640, dtype=torch.uint8)
    plan = classic.build(one(problem, name), GPU)
    assert plan(first, second, bias, residual, out, workspace) is out
    return plan, fake.calls[-1], (first.data_ptr(), second.data_ptr(), out.data_ptr(), workspace.data_ptr())


def number_at(address, kind):
    return kind.from_address(address.value).value


def test_forward_passes_its_arguments_in_cudnns_order(fake):
    problem = PROBLEM
    _, (name, args), (x, w, y, scratch) = run(fake, problem, "cudnn/winograd-nonfused")
    handle, alpha, x_desc, x_at, w_desc, w_at, _, number, workspace, size, beta, y_desc, y_at = args
    shapes = fake.shapes()
    assert (name, handle) == ("cudnnConvolutionForward", "handle 0 5")
    assert (x_at, w_at, y_at, workspace, size, number) == (x, w, y, scratch, 640, 7)
    assert [shapes[d.value] for d in (x_desc, w_desc, y_desc)] == [problem.x.shape, problem.w.shape, problem.y.shape]
    assert (number_at(alpha, c_float), number_at(beta, c_float)) == (1.0, 0.0)


def test_backward_data_passes_the_weight_first(fake):
    problem = PROBLEM.asking(Direction.BACKWARD_DATA)
    _, (name, args), (dy, w, dx, scratch) = run(fake, problem, "cudnn/fft-tiling")
    shapes = fake.shapes()
    assert name == "cudnnConvolutionBackwardData"
    assert (args[3], args[5], args[12], args[8], args[7]) == (w, dy, dx, scratch, 3)
    assert [shapes[args[i].value] for i in (2, 4, 11)] == [problem.w.shape, problem.y.shape, problem.x.shape]


def test_backward_weight_passes_the_input_first(fake):
    problem = PROBLEM.asking(Direction.BACKWARD_WEIGHT)
    _, (name, args), (x, dy, dw, scratch) = run(fake, problem, "cudnn/algo-3")
    shapes = fake.shapes()
    assert name == "cudnnConvolutionBackwardFilter"
    assert (args[3], args[5], args[12], args[8], args[7]) == (x, dy, dw, scratch, 3)
    assert [shapes[args[i].value] for i in (2, 4, 11)] == [problem.x.shape, problem.y.shape, problem.w.shape]


def test_fp64_is_scaled_in_doubles(fake):
    problem = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), dtype="fp64")
    _, (_, args), _ = run(fake, problem, "cudnn/gemm")
    assert (number_at(args[1], c_double), number_at(args[10], c_double)) == (1.0, 0.0)


@pytest.mark.parametrize("direction", Direction)
def test_what_accumulates_keeps_the_output(fake, direction):
    problem = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), epilogue="accumulate", direction=direction)
    for offer in classic.candidates(problem, GPU, Policy()):
        if isinstance(offer, Candidate):
            _, (_, args), _ = run(fake, problem, offer.id)
            assert (number_at(args[1], c_float), number_at(args[10], c_float)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "direction"), [("scale", "forward"), ("relu", "backward_data"), ("bias", "backward_weight")]
)
def test_other_rare_epilogues_are_refused(fake, text, direction):
    problem = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), epilogue=text, direction=direction)
    offers = list(classic.candidates(problem, GPU, Policy()))
    assert all("`unfuse` makes that work of its own" in offer.reason for offer in offers)


def with_epilogue(text):
    return ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), epilogue=text)


def test_bias_residual_and_relu_pass_in_cudnns_order(fake):
    problem = with_epilogue("residual+bias+relu")
    bias, residual = torch.empty(4), torch.empty(problem.y.shape)
    given_ = {"bias": bias, "residual": residual}
    _, (name, args), (x, w, y, scratch) = run(fake, problem, "cudnn/implicit-precomp-gemm", **given_)
    _, alpha, _, x_at, _, w_at, _, number, workspace, size, alpha2, z_desc, z_at, b_desc, b_at, _, y_desc, y_at = args
    assert name == "cudnnConvolutionBiasActivationForward"
    assert (x_at, w_at, number, workspace, size) == (x, w, 1, scratch, 640)
    assert (z_at, b_at, y_at) == (residual.data_ptr(), bias.data_ptr(), y)
    assert z_desc.value == y_desc.value
    assert fake.shapes()[b_desc.value] == (1, 4, 1, 1)
    assert (number_at(alpha, c_float), number_at(alpha2, c_float)) == (1.0, 1.0)
    assert [args[1] for name, args in fake.calls if name == "cudnnSetActivationDescriptor"] == [1]


def test_without_a_residual_the_output_stands_in_scaled_by_zero(fake):
    _, (_, args), (_, _, y, _) = run(fake, with_epilogue("bias"), "cudnn/implicit-precomp-gemm", bias=torch.empty(4))
    assert (number_at(args[10], c_float), args[12], args[17]) == (0.0, y, y)
    assert [args[1] for name, args in fake.calls if name == "cudnnSetActivationDescriptor"] == [5]


def test_without_a_bias_zeros_are_added(fake, monkeypatch):
    zeros = torch.zeros(4)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: zeros)
    _, (_, args), _ = run(fake, with_epilogue("relu"), "cudnn/implicit-precomp-gemm")
    assert args[14] == zeros.data_ptr()


def test_a_failed_call_names_the_candidate(fake):
    fake.answers["cudnnConvolutionForward"] = 5001
    with pytest.raises(BackendError, match=r"cudnn/gemm: the computation failed on the device, in the CUDA driver"):
        run(fake, PROBLEM, "cudnn/gemm")


def test_descriptors_live_exactly_as_long_as_their_plan(fake):
    plan, _, _ = run(fake, PROBLEM, "cudnn/gemm")
    fake.calls.clear()  # what it recorded it also keeps
    gc.collect()
    assert sorted(fake.live.values()) == ["Convolution", "Filter", "Tensor", "Tensor"]
    del plan
    gc.collect()
    assert not fake.live


def test_weights_are_packed_only_where_they_must_be(fake):
    plan = classic.build(one(ConvProblem.of((2, 8, 9, 9), (4, 8, 3, 3), layout="nhwc"), "cudnn/gemm"), GPU)
    weight = torch.randn(4, 8, 3, 3)
    packed = plan.prepare(weight)
    assert packed.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(packed, weight)
    assert plan.prepare(packed) is packed


def test_a_pointwise_weight_is_dense_in_every_layout(fake):
    plan = classic.build(one(ConvProblem.of((2, 8, 9, 9), (4, 8, 1, 1), layout="nhwc"), "cudnn/gemm"), GPU)
    weight = torch.randn(4, 8, 1, 1)
    assert plan.prepare(weight) is weight
    odd = weight.as_strided((4, 8, 1, 1), (8, 1, 77, 99))
    assert plan.prepare(odd) is odd
