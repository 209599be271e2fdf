"""PyTorch's private functions do what their plain names say."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from convwright import torch_api
from convwright.torch_api import address_of


def test_an_address_is_told_without_leave_to_write_there() -> None:
    given = torch.arange(8.0)
    address = given.data_ptr()
    shared = torch._lazy_clone(given)
    assert address_of(shared) == address_of(given) == address
    assert torch._C._is_cow_tensor(shared)
    assert torch._C._is_cow_tensor(given)
    assert address_of(given[3:]) == address + 12
    assert address_of(torch.empty(0)) == address_of(torch.empty(8, device="meta")[3:]) == 0


def test_the_version_and_the_base_of_a_tensor() -> None:
    given = torch.ones(4)
    view = given[1:]
    assert torch_api.base_of(view) is given
    assert torch_api.base_of(given) is None
    assert (torch_api.is_view(view), torch_api.is_view(given)) == (True, False)
    before = torch_api.version_of(given)
    view.add_(1)
    assert torch_api.version_of(given) == torch_api.version_of(view) == before + 1


def test_which_tensors_share_elements_and_storage() -> None:
    given = torch.ones(4)
    assert torch_api.share_storage(given, given[2:])
    assert not torch_api.share_storage(given, given.clone())
    assert torch_api.overlaps_itself(torch.ones(1).expand(3))
    assert not torch_api.overlaps_itself(given)


def test_a_forward_gradient_has_a_level() -> None:
    assert torch_api.forward_gradient_level() < 0
    with torch.autograd.forward_ad.dual_level():
        assert torch_api.forward_gradient_level() >= 0


def test_a_default_device_watches_no_function() -> None:
    assert not torch_api.is_watched()
    with torch.device("cpu"):
        assert (torch_api.function_modes(), torch_api.is_watched()) == (1, False)
    with torch.overrides.BaseTorchFunctionMode():
        assert torch_api.is_watched()


def test_hooks_and_padding_of_modules() -> None:
    conv = nn.Conv2d(1, 1, 3, padding=(1, 2))
    assert torch_api.padded_sides(conv) == [2, 2, 1, 1]
    assert not torch_api.hooks(conv)
    conv.register_forward_pre_hook(lambda module, given: None)
    assert torch_api.hooks(conv)


@pytest.mark.skipif(hasattr(torch._C, "_cuda_getDevice"), reason="this PyTorch was built with CUDA")
def test_without_cuda_nothing_is_captured_and_there_is_no_current_gpu() -> None:
    assert not torch_api.is_capturing()
    with pytest.raises(RuntimeError, match="this PyTorch was built without CUDA"):
        torch_api.current_gpu()
