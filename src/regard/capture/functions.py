"""Functions of torch that make weights, and that may be applied to them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _functions(names: str) -> set[Any]:
    """Return the functions of these names in torch, torch.Tensor and torch.nn.functional."""
    owners = (torch, Tensor, F)
    by_owner = (getattr(owner, name, None) for owner in owners for name in names.split())
    return {function for function in by_owner if function is not None}


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
VIEWS = _functions("view view_as as_strided")
COPIES = _functions(
    "bfloat16 clone contiguous cpu cuda detach double float half requires_grad_ to type type_as"
) | {Tensor.data.__get__}  # pyright: ignore[reportAttributeAccessIssue]
MULTIPLIES = _functions("mul multiply __mul__ __rmul__")
SCALES = MULTIPLIES | _functions(
    "div divide true_divide __truediv__ mul_ div_ __imul__ __itruediv__"
)
ADDS = _functions("add __add__ __radd__ add_ __iadd__")
SUBTRACTS = _functions("sub subtract __sub__ sub_ __isub__")
FILLS = _functions("masked_fill masked_fill_")
CHOOSES = _functions("where")
SETS = _functions("__setitem__")
BOUNDS = _functions("maximum fmax max")
CLAMPS = _functions("clamp clamp_min clip clamp_ clamp_min_")
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
SELECTS = _functions("gather index_select take_along_dim")
# They may leave weights as they are, and put 0 in place of NaN.
KEEP_WEIGHTS = _functions("masked_fill_ nan_to_num_ clamp_ clamp_min_")

FOLLOWED = SHAPES | COPIES | CHANGES | IN_PLACE | GATHERS | DROPOUT | SUMS
"""The functions that may be applied to weights."""

_NAMES = {name for owner in (torch, Tensor) for name in dir(owner) if name.endswith("_")}
_OPTIONAL = {
    function
    for function in vars(F).values()
    if "inplace" in getattr(getattr(function, "__code__", None), "co_varnames", ())
}
WRITES = IN_PLACE | _OPTIONAL | _functions(" ".join(x for x in _NAMES if not x.endswith("__")))
"""The functions that may write to their first argument, by their name or if they are told to."""

BEFORE_SOFTMAX = FOLLOWED | BOUNDS | _functions("tanh")
"""The functions that may be applied to scores."""
