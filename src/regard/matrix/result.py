"""The results of reductions: tensors with named axes."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.matrix.view import Labels

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Tensors with named axes, as in the annotations.

    `*heads` stands for the axes "batch" and "heads", unless they were indexed by a number:
    `A[0, 3].entropy()` has only the axis "queries".

    Attributes:
        labels: the labels of each axis.
    """

    labels: Labels

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}

    def axes(self, name: str) -> tuple[str, ...]:
        """Return the names of the axes of a tensor."""
        (kind,) = (cast(Any, one.type) for one in fields(self) if one.name == name)
        found = tuple(kind.dim_str.split())
        if found[0] != "*heads":
            return found
        return (*(axis for axis in ("batch", "heads") if axis in self.labels), *found[1:])

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Return the tensors as arrays, by name."""
        return {name: values.cpu().numpy() for name, values in self.tensors.items()}

    def frame(self, *names: str) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each element, and a column for each axis and tensor.

        Args:
            names: the tensors. By default the first of those with the most axes, and all others
                without further axes, repeated if they have fewer.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError('DataFrames need pandas: pip install "regard[frame]"') from error
        most = max((self.axes(name) for name in names or self.tensors), key=len)
        fits = [name for name in names or self.tensors if set(self.axes(name)) <= set(most)]
        if names and len(fits) < len(names):
            raise ValueError(f"names must have the same axes, got {', '.join(names)}")
        sizes = [len(self.labels[axis]) for axis in most]
        columns: dict[str, Any] = {}
        for place, axis in enumerate(most):
            shape = [-1 if other == place else 1 for other in range(len(most))]
            labels = np.asarray(self.labels[axis]).reshape(shape)
            columns[axis] = np.broadcast_to(labels, sizes).ravel()
        arrays = self.numpy()
        for name in fits:
            values, mine = arrays[name], self.axes(name)
            shape = [len(self.labels[axis]) if axis in mine else 1 for axis in most]
            columns[name] = np.broadcast_to(values.reshape(shape), sizes).ravel()
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        sizes = {
            name: " × ".join(f"{len(self.labels[axis])} {axis}" for axis in self.axes(name))
            for name in self.tensors
        }
        name_width, size_width = (max(map(len, x)) for x in (sizes, sizes.values()))
        lines = [
            f"  {name:<{name_width}}  {sizes[name]:<{size_width}}  {_described(values)}"
            for name, values in self.tensors.items()
        ]
        return "\n".join([type(self).__name__, *lines])


def _described(values: Tensor) -> str:
    if not values.numel():
        return "empty"
    if values.numel() == 1:
        return f"{values.item():.4g}"
    if not values.is_floating_point():
        return f"{values.min().item()} to {values.max().item()}"
    known = values[~values.isnan()].double()
    if not known.numel():
        return "all NaN"
    mean = known.mean().item()
    missing = f", {values.numel() - known.numel()} NaN" if known.numel() < values.numel() else ""
    return f"{known.min().item():.4g} to {known.max().item():.4g}, mean {mean:.4g}{missing}"
