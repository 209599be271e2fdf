"""The clocks that run anywhere; those of a GPU are tested in tests/gpu."""

from __future__ import annotations

import gc
import os
from time import sleep

import pytest
import torch

from convwright.core.device import DeviceFacts
from convwright.errors import BadInput
from convwright.flags import tf32
from convwright.measuring import conditions as measuring_conditions
from convwright.measuring.clock import WallClock, no_garbage_collection, rotating
from convwright.measuring.conditions import conditions, state
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.hardware.nvml import gpu
from forked import in_child
from measuring.fake_nvml import CLOCK_INFO, EVENT_REASONS, FakeNvml


def test_n_calls_are_made() -> None:
    made: list[int] = []
    WallClock().time_us(lambda: made.append(1), 17)
    assert len(made) == 17


def test_time_is_in_microseconds() -> None:
    assert 20_000 <= WallClock().time_us(lambda: sleep(0.01), 2) < 200_000


def test_garbage_is_not_collected_meanwhile_but_again_afterwards() -> None:
    seen: list[bool] = []
    WallClock().time_us(lambda: seen.append(gc.isenabled()), 1)
    assert seen == [False]
    assert gc.isenabled()


def test_garbage_collection_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        WallClock().time_us(lambda: 1 / 0, 1)
    assert gc.isenabled()


def test_garbage_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        WallClock().time_us(lambda: None, 1)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_equivalent_calls_take_turns_across_samples() -> None:
    order: list[str] = []
    turn = rotating([lambda: order.append("a"), lambda: order.append("b"), lambda: order.append("c")])
    clock = WallClock()
    clock.time_us(turn, 2)
    clock.time_us(turn, 2)
    assert order == ["a", "b", "c", "a"]


def test_one_call_is_called_directly() -> None:
    def call() -> None: ...

    assert rotating(call) is call
    assert rotating([call]) is call
    with pytest.raises(BadInput, match=r"a call must be a function, or a sequence of at least one, got \[\]"):
        rotating([])


def test_conditions_name_the_device_and_the_software_and_leave_out_what_is_unknown() -> None:
    found = dict(conditions(device_facts("cpu")))
    assert {"device", "torch", "python", "threads", "convwright"} <= found.keys()
    assert not {"cuda", "sm_clock_mhz", "driver", "tf32"} & found.keys()
    assert not {"None", "0", ""} & set(found.values())


def test_conditions_on_a_cpu_name_the_onednn_that_pytorch_brings() -> None:
    version = dict(conditions(device_facts("cpu"))).get("onednn")
    assert (version is not None) == torch.backends.mkldnn.is_available()
    assert version is None or f"v{version} " in torch.__config__.show()


@pytest.mark.parametrize(("allowed", "said"), [(True, "allowed"), (False, "not allowed")])
def test_conditions_on_a_gpu_say_whether_tf32_is_allowed(allowed: bool, said: str) -> None:
    with tf32(allowed):
        assert dict(conditions(device_facts("h200")))["tf32"] == said


def test_clocks_are_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    device = DeviceFacts("a GPU", "cuda", "sm_90", torch_name="cuda:0")
    for clock in (345, 1980):
        fake = FakeNvml({(CLOCK_INFO, 1): clock})
        monkeypatch.setattr(measuring_conditions, "gpu_of", lambda _, fake=fake: gpu("GPU-1", fake))
        assert dict(state(device))["sm_clock_mhz"] == str(clock)
    assert state(device_facts("cpu")) == state(device_facts("h200")) == ()


def test_conditions_of_an_absent_device_have_no_clocks() -> None:
    assert not {"sm_clock_mhz", "throttle_reasons", "threads"} & dict(conditions(device_facts("h200"))).keys()


def test_conditions_of_a_gpu_say_what_nvml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml({(CLOCK_INFO, 1): 1755, (CLOCK_INFO, 2): 3201, EVENT_REASONS: 0x044})
    monkeypatch.setattr(measuring_conditions, "gpu_of", lambda device: gpu("GPU-1", fake))
    found = dict(conditions(DeviceFacts("a GPU", "cuda", "sm_90", torch_name="cuda:0")))
    assert (found["sm_clock_mhz"], found["memory_clock_mhz"]) == ("1755", "3201")
    assert found["throttle_reasons"] == "power-cap+hw-thermal"
    assert "temperature_c" not in found


def test_calls_run_back_to_back() -> None:
    made: list[int] = []
    WallClock().run(lambda: made.append(1), 5)
    assert len(made) == 5


def test_no_garbage_is_looked_for_until_the_last_is_through() -> None:
    first, second = no_garbage_collection(), no_garbage_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled(), "the second is still inside"
    second.__exit__(None, None, None)
    assert gc.isenabled()
    gc.disable()
    try:
        with no_garbage_collection():
            pass
        assert not gc.isenabled(), "where it was off before it stays so"
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_is_forked_off_meanwhile_looks_for_garbage() -> None:
    with no_garbage_collection():
        assert in_child(gc.isenabled) == "True"
        assert not gc.isenabled()
