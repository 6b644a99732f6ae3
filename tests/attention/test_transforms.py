"""Second derivatives, the transforms of `torch.func`, and torch's default device."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacrev, vmap

import regard
from regard import attend, attend_with_lse, causal, documents, global_at, neighbours, window
from regard.matrix import Entropy
from regard.patterns import columns, from_mask, padding, prefix, strided
from regard.positions import Relative, alibi, softcap

pytestmark = pytest.mark.usefixtures("one_thread", "unchecked")

NEAR = causal() & window(before=10)


def inputs(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    query, key, value = torch.randn(3, *shape, generator=chance, dtype=torch.float64)
    return query, key, value


class TestSecondDerivatives:
    """They are refused; a penalty on a gradient would otherwise count for nothing."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda *x: attend(*x, pattern=NEAR, backend="blocks"),
            lambda *x: attend(*x, pattern=NEAR, bias=softcap(2.0)),
            lambda *x: attend_with_lse(*x, pattern=NEAR, backend="fused")[0],
            lambda *x: attend_with_lse(*x, pattern=NEAR, backend="blocks")[1],
        ],
    )
    @pytest.mark.parametrize("power", [1, 2])
    @pytest.mark.parametrize("part", [0, 1])
    def test_they_are_refused(self, part: int, power: int, call: Callable[..., Tensor]) -> None:
        x = [part.requires_grad_() for part in inputs(1, 2, 67, 8)]
        total = call(*x).pow(power).sum()
        (first,) = torch.autograd.grad(total, x[part], create_graph=True)
        penalty = first.square().sum() + x[part].sum()
        rule = r'^PyTorch\'s fused kernels have no second derivatives.*backend="reference"\)'
        with pytest.raises(NotImplementedError, match=rule):
            penalty.backward()

    def test_a_graph_that_is_made_and_not_used(self) -> None:
        x = [part.requires_grad_() for part in inputs(1, 2, 67, 8)]
        found = torch.autograd.grad(attend(*x, pattern=NEAR).sum(), x, create_graph=True)
        expected = torch.autograd.grad(attend(*x, pattern=NEAR, backend="reference").sum(), x)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.detach(), other)

    def test_the_reference_has_them(self) -> None:
        x = [part.requires_grad_() for part in inputs(1, 1, 4, 3)]
        assert torch.autograd.gradgradcheck(
            lambda *x: attend(*x, pattern=causal(), backend="reference"), x
        )


class TestTransforms:
    """Those of `torch.func`, held against the reference under the same transform."""

    @pytest.mark.parametrize("bias", [None, alibi(2), softcap(2.0)], ids=["none", "added", "not"])
    @pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, 0), (2, 1, None)])
    @pytest.mark.parametrize("lse", [False, True])
    def test_a_gradient_for_each_entry(self, lse: bool, axes: tuple[Any, ...], bias: Any) -> None:
        each = inputs(3, 1, 2, 67, 8)
        from_mask = [
            x[0] if axis is None else x.movedim(0, axis) for x, axis in zip(each, axes, strict=True)
        ]

        def mapped(backend: str) -> Any:
            def total(*x: Tensor) -> Tensor:
                output, sums = attend_with_lse(*x, pattern=NEAR, bias=bias, backend=backend)
                return output.square().sum() + (sums.square().sum() if lse else 0.0)

            return vmap(grad(total, argnums=(0, 1, 2)), in_dims=axes)(*from_mask)

        for found, expected in zip(mapped("blocks"), mapped("reference"), strict=True):
            torch.testing.assert_close(found, expected)

    def test_outputs(self) -> None:
        each = inputs(3, 2, 2, 67, 8)
        found = vmap(lambda *x: attend(*x, pattern=NEAR, backend="blocks"))(*each)
        one_by_one = [attend(*x, pattern=NEAR) for x in zip(*each, strict=True)]
        torch.testing.assert_close(found, torch.stack(one_by_one))

    def test_jacobians(self) -> None:
        query, key, value = inputs(1, 1, 5, 3)

        def jacobian(backend: str) -> Any:
            return jacrev(lambda x: attend(query, x, value, pattern=causal(), backend=backend))(key)

        torch.testing.assert_close(jacobian("blocks"), jacobian("reference"))

    @pytest.mark.parametrize(
        "make",
        [
            lambda: causal() & window(before=11),
            lambda: global_at([1, 7]) | window(before=2),
            lambda: strided(5),
            lambda: neighbours([(n, n // 3) for n in range(53)]),
        ],
    )
    def test_a_pattern_that_is_new_to_it(self, make: Callable[[], Any]) -> None:
        query, key, value = inputs(1, 2, 53, 4)

        def total(x: Tensor, backend: str, pattern: Any) -> Tensor:
            return attend(query, x, value, pattern=pattern, backend=backend).square().sum()

        expected = grad(total)(key, "reference", make())
        torch.testing.assert_close(grad(total)(key, "blocks", make()), expected)
        inside = grad(lambda x: total(x, "blocks", make()))(key)
        torch.testing.assert_close(inside, expected)
        # What was remembered there is of use here.
        x = key.clone().requires_grad_()
        (found,) = torch.autograd.grad(total(x, "blocks", make()), x)
        torch.testing.assert_close(found, expected)

    def test_hessians_are_refused(self) -> None:
        query, key, value = inputs(1, 1, 5, 3)
        with pytest.raises(Exception, match=r"second derivatives|forward.mode|jvp"):
            hessian(lambda x: attend(x, key, value, pattern=causal(), backend="blocks").sum())(
                query
            )

    @pytest.mark.parametrize(
        "options",
        [
            {"pattern": padding([60, 67])},
            {"pattern": from_mask(torch.ones(2, 67, 67, dtype=torch.bool).tril())},
            {"bias": torch.zeros(2, 1, 67, 67, dtype=torch.float64)},
        ],
        ids=["padding", "from_mask", "bias"],
    )
    def test_entries_for_each_sequence_are_refused(self, options: dict[str, Any]) -> None:
        each = inputs(3, 2, 2, 67, 8)
        with pytest.raises(
            ValueError, match=r"^torch.vmap supports neither a pattern or bias with"
        ):
            vmap(lambda *x: attend(*x, backend="blocks", **options))(*each)

    def test_a_bias_that_is_mapped_over_is_refused(self) -> None:
        each, bias = inputs(3, 1, 2, 67, 8), torch.zeros(3, 1, 2, 67, 67, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"nor a mapped bias: fold the mapped axis"):
            vmap(lambda b, *x: attend(*x, bias=b, backend="blocks"))(bias, *each)


LENGTH = 400
"""Long enough for every backend to be chosen."""

MAKERS: dict[str, Callable[[], Any]] = {
    "window": lambda: causal() & window(before=20),
    "global": lambda: global_at([1, 7]) | window(before=3),
    "columns": lambda: causal() & (columns(every=9) | prefix(3)),
    "strided": lambda: strided(7),
    "documents": lambda: documents([n // 50 for n in range(LENGTH)]),
    "padding": lambda: padding([300]),
    "left": lambda: causal() & padding(starts=[100]),
    "neighbours": lambda: neighbours([(n, n // 2) for n in range(LENGTH)]),
    "mask": lambda: from_mask(torch.ones(LENGTH, LENGTH, dtype=torch.bool, device="cpu").tril()),
}


@pytest.mark.parametrize("name", MAKERS)
def test_whatever_the_default_device_is(name: str) -> None:
    """The meta device is the strictest: whatever lies there has no numbers."""
    query, key, value = inputs(1, 2, LENGTH, 8)
    expected = attend(query, key, value, pattern=MAKERS[name](), backend="reference")
    with torch.device("meta"):
        pattern = MAKERS[name]()
        for backend in ("auto", "fused", "blocks", "reference"):
            found = attend(query, key, value, pattern=pattern, backend=backend)
            torch.testing.assert_close(found, expected)
        matrix = regard.AttentionMatrix(query, key, pattern=pattern)
        torch.testing.assert_close(matrix @ value, expected)
        assert matrix.rows([3, 1]).shape == (1, 2, 2, LENGTH)
        assert matrix.columns([3, 1])[..., 5:, :].device.type == "cpu"
        (entropy,) = matrix.summarize(Entropy())
        assert entropy.nats.device.type == "cpu"
        assert len(pattern.allows([0, 1], range(LENGTH))[0]) > 0


@pytest.mark.parametrize("make", [alibi, Relative])
def test_biases_that_were_on_the_meta_device(make: Callable[[int], Any]) -> None:
    with torch.device("meta"):
        bias = make(2)
    bias = bias.to_empty(device="cpu")
    bias.load_state_dict(make(2).state_dict())
    x = inputs(1, 2, 67, 8)
    torch.testing.assert_close(attend(*x, bias=bias), attend(*x, bias=make(2)))


def test_the_default_device_while_somebody_watches() -> None:
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    x = torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(0))
    hidden = torch.zeros(2, 9, dtype=torch.bool)
    hidden[1, 6:] = True
    with regard.watch(model) as expected:
        model(x, src_key_padding_mask=hidden)
    with torch.device("meta"), regard.watch(model) as seen:
        model(x, src_key_padding_mask=hidden)
        assert torch.equal(seen[0].matrix.dense(), expected[0].matrix.dense())
    seen.verify()
