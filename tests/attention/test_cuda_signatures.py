"""The CUDA kernels take what we hand them, checked without a GPU: tensors have shapes only."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from regard.attention import kernels


class IndexedWithoutADevice(TorchFunctionMode):
    """Index the last axis by named operators: brackets ask for the GPU even of a fake tensor."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not Tensor.__getitem__:
            return func(*args, **(kwargs or {}))
        tensor, (every, index) = args
        assert every is ...
        if index is None:
            return tensor.unsqueeze(-1)
        if isinstance(index, int):
            return tensor.select(-1, index)
        return tensor.narrow(-1, 0, min(index.stop, tensor.shape[-1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("masked", ["no", "causal", "alike", "by head", "by rectangle"])
@pytest.mark.parametrize(("num_queries", "num_keys"), [(37, 37), (64, 96), (1, 131), (129, 33)])
def test_shapes_and_dtypes(
    dtype: torch.dtype, masked: str, num_queries: int, num_keys: int
) -> None:
    rectangles, heads, dim = 2, 3, 16
    shapes = {
        "alike": (1, 1, num_queries, num_keys),
        "by head": (1, heads, num_queries, num_keys),
        "by rectangle": (rectangles, 1, num_queries, num_keys),
    }
    with FakeTensorMode(), IndexedWithoutADevice():
        query = torch.empty(rectangles, heads, num_queries, dim, dtype=dtype, device="cuda")
        key = torch.empty(rectangles, heads, num_keys, dim, dtype=dtype, device="cuda")
        # The sums, and so the mask, are kept in float32 whatever the type of the query.
        mask = torch.zeros(shapes[masked], device="cuda") if masked in shapes else None
        call = kernels.KernelCall(query, key, key.clone(), mask, masked == "causal", 0.25)

        output, lse = kernels.forward(call)
        assert output.shape == query.shape
        assert output.dtype == dtype
        assert lse.shape == (rectangles, heads, num_queries, 1)
        assert lse.dtype == torch.float32
        assert output.device.type == lse.device.type == "cuda"

        gradients = kernels.backward(call, torch.empty_like(output), output, lse)
        assert [x.shape for x in gradients] == [query.shape, key.shape, key.shape]
        assert {x.dtype for x in gradients} == {dtype}


@pytest.mark.parametrize("num_keys", [1, 7, 8, 33, 131])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_mask_is_aligned(num_keys: int, dtype: torch.dtype) -> None:
    """The kernel wants the rows of the mask to start at multiples of 8 numbers, in its own type."""
    query, key = torch.zeros(2, 3, 5, 16, dtype=dtype), torch.zeros(2, 3, num_keys, 16, dtype=dtype)
    mask = torch.randn(1, 3, 5, num_keys)
    aligned = kernels._aligned_mask(kernels.KernelCall(query, key, key, mask, False, 1.0))
    assert aligned is not None
    assert aligned.shape == (2, 3, 5, num_keys)
    assert aligned.dtype == dtype
    assert aligned.stride(-1) == 1
    assert all(stride % 8 == 0 for stride in aligned.stride()[:-1])
    assert torch.equal(aligned, mask.to(dtype).expand_as(aligned))


def test_no_mask_stays_none() -> None:
    query = torch.zeros(2, 3, 5, 16)
    assert kernels._aligned_mask(kernels.KernelCall(query, query, query, None, True, 1.0)) is None
