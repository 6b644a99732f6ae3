"""The linear layer that the output of a call goes to."""

from jaxtyping import Float
from torch import Tensor

from regard.versions import Overwritten, Versions


class OutputProjection:
    """The output projection of a call.

    Args:
        module: path of the linear layer.
        weight: what the outputs of all heads, one after the other, are multiplied with.
        num_heads: number of heads.
    """

    def __init__(
        self, module: str, weight: Float[Tensor, "heads_and_value_dim model_dim"], num_heads: int
    ) -> None:
        self.module = module
        self._by_head = weight.detach().unflatten(0, (num_heads, -1))
        self._versions = Versions([("weight", weight)])

    @property
    def by_head(self) -> Float[Tensor, "heads value_dim model_dim"]:
        """The part of each head.

        Raises:
            Overwritten: it was modified in place since, as training does.
        """
        if self._versions.modified():
            raise Overwritten(f"the weight of {self.module} was modified in place since")
        return self._by_head
