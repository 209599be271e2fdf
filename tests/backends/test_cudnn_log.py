"""cuDNN's diagnostic log: of each refusal, the conditions that failed, without what hands them on."""

from __future__ import annotations

import pytest

from convwright.backends.cudnn.log import failed_conditions


def entry(*reasons: str, status: str = "NOT_SUPPORTED", mark: str = "w", word: str = "Warning") -> str:
    lines = [f"{mark}!         {word}: CUDNN_STATUS_{status}; Reason: {reason}" for reason in reasons]
    head = f"{mark.upper()}! CuDNN (v91900 56) function cudnnBackendFinalize() called:"
    tail = [f"{mark}! Time: 2026-11-21T21:23:20.189187 (0d+0h+0m+0s since start)", f"{mark}! Process=1; Thread=1.", ""]
    return "\n".join(["", head, *lines, *tail])


STARTING = entry("cuDNN Library configuration is set to AUTO.", status="SUCCESS")
FORWARDED = ("core_engine.getStatus()", "engine_iface->getStatus()", "status", "finalize_internal()")


def test_the_deepest_condition_comes_first_and_each_once() -> None:
    log = STARTING + entry("conv.c > specs.c_value", "conv.c > specs.c_value", "wDesc->dimA[1] != 1", *FORWARDED)
    assert failed_conditions(log) == ("conv.c > specs.c_value", "wDesc->dimA[1] != 1")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Engine 20 is not enabled for CONV_FORWARD at: true", "Engine 20 is not enabled for CONV_FORWARD"),
        ("'c' per group must be 1 at: wDesc->dimA[1] != 1", "'c' per group must be 1 (wDesc->dimA[1] != 1)"),
        ("!is_NHWC", "!is_NHWC"),
        ("false == is_good", "false == is_good"),
        ("this->libcuda == nullptr", "this->libcuda == nullptr"),
        ("conv.g % (2 * impl::C_PER_BLOCK) != 0", "conv.g % (2 * impl::C_PER_BLOCK) != 0"),
        ("(a() || b()) && (c != 0)", "(a() || b()) && (c != 0)"),
        (
            "no search results or none implementable (stt=1, cur=0x7ffe5c902e38, results=0x7ffe5c902e38)\n"
            " at: 0 == newResults",
            "no search results or none implementable (0 == newResults)",
        ),
    ],
)
def test_a_condition_is_told_without_what_only_cudnns_makers_can_read(line: str, said: str) -> None:
    assert failed_conditions(entry(line, *FORWARDED)) == (said,)


@pytest.mark.parametrize(
    "line",
    [
        *FORWARDED,
        "m_bpe.initialize(core_engine, get_aux_at(0))",
        "rtc[i]->loadDLL()",
        "ConvolutionEngine::getStatus()",
        "(CUDNN_STATUS_NOT_INITIALIZED == status) || (CUDNN_STATUS_NOT_SUPPORTED == ((status) / 1000 * 1000))",
    ],
)
def test_who_hands_a_failure_on_is_no_reason(line: str) -> None:
    assert failed_conditions(entry(line)) == ()


def test_only_the_last_refusal_counts() -> None:
    log = entry("an earlier one != 0") + entry("dims <= 0", status="BAD_PARAM", mark="e", word="Error") + STARTING
    assert failed_conditions(log) == ("dims <= 0",)


@pytest.mark.parametrize("log", ["", "Traceback\n", STARTING])
def test_a_log_without_refusals_names_none(log: str) -> None:
    assert failed_conditions(log) == ()
