"""A transformer that writes text: the shapes of GPT-2 and Llama."""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.layers import KeyValueCache
from regard.matrix import AttentionMatrix
from regard.models.embedding import TokenEmbedding
from regard.models.order import PositionEncoding
from regard.models.sampling import choose
from regard.models.stack import STD, Stack, make_norm
from regard.models.weights import gpt2, llama, loaded
from regard.patterns import Pattern, causal, padding
from regard.patterns.narrowed import narrowed


class TextDecoder(nn.Module):
    """Say what may come next, from what came before (Radford et al., 2019; Touvron et al., 2023).

    The defaults are GPT-2's shape. Llama's is `position_encoding="rotary", norm="rms",
    activation="swiglu", projection_bias=False`, often with fewer key heads.

    Args:
        vocabulary_size: number of different tokens.
        model_dim: size of the vectors.
        num_layers: number of blocks.
        num_heads: number of query heads of a block.
        num_key_heads: number of key heads of a block; as many by default.
        key_dim: size of a head's queries, keys and values; model_dim // num_heads by default.
        hidden_dim: size of the hidden layer of a block; 4 · model_dim by default, and 0 for blocks
            of attention alone.
        position_encoding: how the model is told the order of its tokens: "learned", "sinusoidal",
            "rotary", "alibi", "relative", a `Rotary`, a `Bias` or None.
        num_positions: the longest sequence, if positions are learned.
        norm: "layer" or "rms".
        norm_eps: what is added to a variance before it divides.
        activation: the activation of the hidden layer, as in `FeedForward`.
        projection_bias: whether linear layers have biases.
        tied: whether the matrix that reads tokens also scores them.
        pattern: who may look at whom; `causal()` by default. Add a window with
            `causal() & window(before=255)`.
        dropout: the share that is dropped in training, of embeddings and of what blocks add.
        attention_dropout: the share of attention weights that is dropped in training.

    Raises:
        ValueError: sizes don't fit together, or there is no choice of that name.

    >>> import torch
    >>> decoder = TextDecoder(vocabulary_size=100, model_dim=32, num_layers=2, num_heads=4).eval()
    >>> tokens = torch.randint(100, (2, 7))
    >>> decoder(tokens).shape
    torch.Size([2, 7, 100])
    >>> decoder.generate(tokens, 5).shape
    torch.Size([2, 12])
    """

    def __init__(
        self,
        vocabulary_size: int,
        model_dim: int,
        num_layers: int,
        num_heads: int,
        *,
        num_key_heads: int | None = None,
        key_dim: int | None = None,
        hidden_dim: int | None = None,
        position_encoding: PositionEncoding = "learned",
        num_positions: int = 1024,
        norm: str = "layer",
        norm_eps: float = 1e-5,
        activation: str = "gelu_tanh",
        projection_bias: bool = True,
        tied: bool = True,
        pattern: Pattern | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = Stack(
            num_layers,
            model_dim,
            num_heads,
            num_key_heads=num_key_heads,
            key_dim=key_dim,
            hidden_dim=hidden_dim,
            activation=activation,
            norm=norm,
            norm_eps=norm_eps,
            position_encoding=position_encoding,
            bidirectional=False,
            projection_bias=projection_bias,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        self.embedding = TokenEmbedding(
            vocabulary_size,
            model_dim,
            position_encoding=position_encoding,
            num_positions=num_positions,
        )
        self.dropout = nn.Dropout(dropout)
        self.norm = make_norm(norm, model_dim, norm_eps)
        self.head = nn.Linear(model_dim, vocabulary_size, bias=False)
        nn.init.normal_(self.head.weight, std=STD)
        if tied:
            self.head.weight = self.embedding.tokens.weight
        self.pattern = causal() if pattern is None else pattern

    @classmethod
    def from_transformers(cls, model: nn.Module) -> "TextDecoder":
        """Make a decoder with the weights of a GPT-2 or Llama model of transformers.

        Args:
            model: a `GPT2LMHeadModel` or `LlamaForCausalLM`.

        Raises:
            ValueError: the model is of another kind, or has something that this class has not.
        """
        return loaded(cls, model, {"gpt2": gpt2, "llama": llama})

    def forward(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        starts: Sequence[int] | Int[Tensor, "batch"] | None = None,
        pattern: Pattern | None = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, "batch sequence vocabulary"]:
        """Score all tokens as the next one, at each position.

        Args:
            tokens: token ids, [batch, sequence].
            starts: where each sequence starts, [batch], if sequences of different lengths are
                padded before they start; at 0 by default.
            pattern: who may look at whom in this call, of those who may at all.
            caches: earlier tokens, a cache for each layer, to which these are added; see
                `new_caches`.

        Returns:
            Logits, [batch, sequence, vocabulary].
        """
        x, pattern = self._started(tokens, starts, pattern, caches)
        return self.head(self.norm(self.layers(x, pattern=pattern, caches=caches)))

    def states(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        starts: Sequence[int] | Int[Tensor, "batch"] | None = None,
        pattern: Pattern | None = None,
    ) -> list[Float[Tensor, "batch sequence model_dim"]]:
        """Return the embeddings and what each block made of them; arguments as for `forward`."""
        x, pattern = self._started(tokens, starts, pattern, None)
        return self.layers.states(x, pattern=pattern)

    @torch.no_grad()
    def matrices(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        starts: Sequence[int] | Int[Tensor, "batch"] | None = None,
        pattern: Pattern | None = None,
    ) -> list[AttentionMatrix]:
        """Return the attention matrix of each block; arguments as for `forward`."""
        x, pattern = self._started(tokens, starts, pattern, None)
        return self.layers.matrices(x, pattern=pattern)

    def new_caches(self) -> list[KeyValueCache]:
        """Return an empty cache for each layer."""
        return [KeyValueCache() for _ in self.layers]

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "batch sequence"],
        num_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Collection[int] = (),
        starts: Sequence[int] | Int[Tensor, "batch"] | None = None,
        cached: bool = True,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "batch longer"]:
        """Continue sequences, token by token.

        Call `eval()` first if the model has dropout.

        Args:
            tokens: what to continue, [batch, sequence].
            num_tokens: how many tokens are added, at most.
            temperature: 0 takes the best token each time; otherwise tokens are drawn from
                softmax(logits / temperature).
            top_k: draw from the k best tokens only.
            top_p: draw from the fewest best tokens that together have at least this probability.
            stop: tokens that end a sequence. It is filled up with the one that ended it, until all
                sequences have ended.
            starts: where each sequence starts, [batch], if they are padded before.
            cached: whether keys and values are kept for the next token instead of computed again.
            generator: where chance comes from.

        Returns:
            The sequences with what was added, [batch, sequence + at most num_tokens].

        Raises:
            ValueError: there is nothing to continue, or an argument is out of its range.
        """
        if not tokens.shape[1]:
            raise ValueError("tokens must have at least one position to continue, got none")
        if num_tokens < 0:
            raise ValueError(f"num_tokens must be at least 0, got {num_tokens}")
        caches = self.new_caches() if cached else None
        ends = torch.tensor(sorted(stop), dtype=tokens.dtype, device=tokens.device)
        ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        new = tokens
        for _ in range(num_tokens):
            x, pattern = self._started(new if cached else tokens, starts, None, caches)
            last = self.layers(x, pattern=pattern, caches=caches)[:, -1]
            logits = self.head(self.norm(last))
            chosen = choose(
                logits, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
            ).to(tokens.dtype)
            chosen = torch.where(ended, tokens[:, -1], chosen)
            new = chosen[:, None]
            tokens = torch.cat([tokens, new], dim=1)
            ended = ended | torch.isin(chosen, ends)
            if bool(ended.all()):
                break
        return tokens

    def _started(
        self,
        tokens: Tensor,
        starts: Sequence[int] | Tensor | None,
        pattern: Pattern | None,
        caches: Sequence[KeyValueCache] | None,
    ) -> tuple[Tensor, Pattern | None]:
        """Return the vectors that enter the first block, and who may look at whom."""
        offset = len(caches[0]) if caches else 0
        pattern = narrowed(self.pattern, pattern)
        if starts is not None:
            starts = torch.as_tensor(starts, device=tokens.device)
            if starts.shape != tokens.shape[:1]:
                raise ValueError(
                    f"starts must name one start per sequence, got {starts.numel()} for a batch of "
                    f"{len(tokens)}"
                )
            pattern = narrowed(pattern, padding(starts=starts))
        x = self.embedding(tokens, offset=offset, starts=starts)
        return self.dropout(x), pattern
