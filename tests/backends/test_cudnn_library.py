import ctypes
import threading
from contextlib import nullcontext

import pytest
import torch

from convwright.backends.cudnn import library as library_module
from convwright.backends.cudnn.library import Library, Missing, handle, load
from convwright.backends.cudnn.status import explain
from convwright.errors import BackendError


@pytest.fixture
def cudnn() -> Library:
    found = load()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "succeeded"),
        (1001, "no working device"),
        (1008, "one of its libraries"),
        (2000, "bad parameter"),
        (2003, "aligned"),
        (3000, "does not support this"),
        (3002, "shape"),
        (3003, "dtype"),
        (3004, "layout"),
        (3007, "architecture"),
        (3008, "at run time"),
        (4004, "device memory"),
        (5003, "CUDA runtime"),
    ],
)
def test_statuses_read_as_words_and_keep_their_number(status, words):
    assert words in explain(status)
    assert f"(status {status})" in explain(status)


@pytest.mark.parametrize(("status", "family"), [(1999, 1000), (2999, 2000), (3999, 3000), (4999, 4000), (5999, 5000)])
def test_an_unknown_case_reads_as_its_family(status, family):
    assert explain(status).split(" (")[0] == explain(family).split(" (")[0]


def test_a_status_of_no_family_says_so():
    assert "unknown status" in explain(77_000)


def test_cudnns_own_words_are_added_on_one_line():
    assert explain(2000, "a <= 0\n  because b\n") == "cuDNN was given a bad parameter (status 2000: a <= 0 because b)"


def test_the_library_is_loaded_once_and_tells_its_version(cudnn):
    assert load() is cudnn
    assert 90_000 <= cudnn.version < 100_000


def test_a_failed_call_is_raised_in_words_with_cudnns_own(cudnn):
    descriptor = ctypes.c_void_p()
    cudnn.call("cudnnCreateTensorDescriptor", ctypes.byref(descriptor))
    sizes = (ctypes.c_int * 4)(1, 0, 1, 1)
    with pytest.raises(BackendError, match=r"cudnnSetTensorNdDescriptor: .*bad parameter \(status 2000: .*<= 0"):
        cudnn.call("cudnnSetTensorNdDescriptor", descriptor, 0, 4, sizes, sizes)
    cudnn.call("cudnnDestroyTensorDescriptor", descriptor)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_no_handle_can_be_made(cudnn):
    with pytest.raises(BackendError, match="no working device or driver"):
        cudnn.call("cudnnCreate", ctypes.byref(ctypes.c_void_p()))


def test_a_library_that_cannot_be_opened_is_missing_with_the_reason(monkeypatch):
    def fail(path, **_):
        raise OSError(f"{path}: no such file")

    monkeypatch.setattr(library_module, "_open", fail)
    found = load.__wrapped__()
    assert isinstance(found, Missing)
    assert "libcudnn.so.9: no such file" in found.reason
    assert "convwright[plan]" in str(found)


class FakeGpu:
    """Counts the handles that are made, and can pretend to capture a graph."""

    def __init__(self, monkeypatch):
        self.made, self.bound, self.capturing = 0, [], False
        functions = {"cudnnCreate": self._create, "cudnnSetStream": self._set_stream}
        monkeypatch.setattr(library_module, "load", lambda: Library(91900, "fake", functions))
        monkeypatch.setattr(library_module, "_handles", {})
        monkeypatch.setattr(library_module, "_spares", {})
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)

    def _create(self, reference):
        assert not self.capturing, "making a handle allocates"
        self.made += 1
        reference._obj.value = self.made
        return 0

    def _set_stream(self, made, stream):
        self.bound.append((made.value, stream))
        return 0


@pytest.fixture
def gpu(monkeypatch):
    return FakeGpu(monkeypatch)


def test_there_is_one_handle_for_each_device_and_stream(gpu):
    handles = [handle(device, stream) for device in (0, 1) for stream in (0, 7)]
    assert [handle(device, stream) for device in (0, 1) for stream in (0, 7)] == handles
    assert len({made.value for made in handles}) == 4
    assert [stream for _, stream in gpu.bound] == [0, 7, 0, 7]


def test_a_capture_on_a_new_stream_takes_the_handle_kept_ready(gpu):
    warm = handle(0, 0)
    gpu.capturing = True
    assert handle(0, 7).value != warm.value
    assert gpu.bound[-1] == (handle(0, 7).value, 7)


def test_threads_that_ask_at_once_get_the_same_handle(gpu):
    barrier, found = threading.Barrier(8), []

    def ask():
        barrier.wait()
        found.append(handle(0, 3).value)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_without_cudnn_a_handle_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(library_module, "load", lambda: Missing("there is none"))
    monkeypatch.setattr(library_module, "_handles", {})
    with pytest.raises(BackendError, match="there is none"):
        handle(0, 0)
