"""Functions of torch that make weights, and that may be applied to them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _functions(names: str) -> set[Any]:
    """Return the functions of these names in torch, torch.Tensor and torch.nn.functional."""
    found = (getattr(owner, name, None) for owner in (torch, Tensor, F) for name in names.split())
    return {function for function in found if function is not None}


LOG_SOFTMAX = _functions("log_softmax") | {torch.special.log_softmax}
EXP = _functions("exp")
BEGINS = _functions("softmax") | {torch.special.softmax} | LOG_SOFTMAX | EXP
SUMS = _functions("sum")
DROPOUT = _functions("dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout")
SHAPES = _functions(
    "adjoint as_strided chunk diagonal expand expand_as flatten flip moveaxis movedim narrow "
    "permute ravel reshape reshape_as roll select split squeeze swapaxes swapdims t tensor_split "
    "transpose unbind unflatten unfold unsqueeze view view_as __getitem__"
) | {getattr(Tensor, name).__get__ for name in ("H", "T", "mH", "mT")}
COPIES = _functions(
    "bfloat16 clone contiguous cpu cuda detach double float half requires_grad_ to type type_as"
) | {Tensor.data.__get__}  # pyright: ignore[reportAttributeAccessIssue]
MULTIPLIES = _functions("mul multiply __mul__ __rmul__")
CHANGES = MULTIPLIES | _functions(
    "abs add clamp clamp_max clamp_min clip conv1d conv2d div divide fill_diagonal fmax fmin lerp "
    "masked_fill masked_scatter maximum minimum nan_to_num neg normalize pow relu square sub "
    "subtract threshold tril triu true_divide where __add__ __pow__ __radd__ __rsub__ __sub__ "
    "__truediv__"
)
IN_PLACE = _functions(
    "abs_ add_ clamp_ clamp_max_ clamp_min_ copy_ div_ fill_diagonal_ masked_fill_ masked_scatter_ "
    "mul_ nan_to_num_ neg_ pow_ relu_ sub_ threshold_ tril_ triu_ __iadd__ __imul__ __isub__ "
    "__itruediv__ __setitem__"
)
# They return new memory, in which strides don't show the axes.
GATHERS = _functions(
    "cat concat concatenate gather hstack index_select pad repeat repeat_interleave stack "
    "take_along_dim tile vstack"
)

FOLLOWED = SHAPES | COPIES | CHANGES | IN_PLACE | GATHERS | DROPOUT | SUMS
"""The functions that may be applied to weights."""
