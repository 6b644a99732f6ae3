"""GPT-2 and Llama."""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.layers import KeyValueCache
from regard.matrix import AttentionMatrix
from regard.models.embedding import TokenEmbedding
from regard.models.sampling import choose
from regard.models.stack import STD, PositionEncoding, Stack, StackConfig, make_norm
from regard.models.weights import convert, gpt2, llama
from regard.patterns import Pattern, causal, padding
from regard.patterns.pattern import intersect


class TextDecoder(nn.Module):
    """A causal language model (Radford et al., 2019; Touvron et al., 2023).

    The defaults are GPT-2's. Llama's are `position_encoding="rotary", norm="rms",
    activation="swiglu", projection_bias=False`, often with fewer key heads.

    Args:
        vocabulary_size: size of the vocabulary.
        model_dim: size of the vectors.
        num_layers: number of blocks.
        num_heads: number of query heads of a block.
        num_key_heads: number of key heads of a block; `num_heads` by default.
        key_dim: size of a head's queries, keys and values; model_dim // num_heads by default.
        hidden_dim: hidden size of the feed-forward layer; 4 · model_dim by default, 0 for none.
        position_encoding: "learned", "sinusoidal", "rotary", "alibi", "relative", a `Rotary`, a
            `Bias` or None.
        num_positions: the longest sequence, if positions are learned.
        norm: "layer" or "rms".
        norm_eps: epsilon of the norms.
        activation: activation of the feed-forward layer; see `FeedForward`.
        projection_bias: whether linear layers have biases.
        tied: whether input and output embeddings are tied.
        pattern: `causal()` by default. Add a window with `causal() & window(before=255)`.
        dropout: dropout probability of embeddings and residual branches.
        attention_dropout: dropout probability of attention weights.

    Raises:
        ValueError: sizes don't fit together, or a choice is unknown.

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
        # 1. Blocks.
        config = StackConfig(
            num_layers=num_layers,
            model_dim=model_dim,
            num_heads=num_heads,
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
        self.layers = Stack(config)

        # 2. Embeddings, which may be tied to the output.
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
            ValueError: the model has another type, a setting that this class doesn't support, or
                computes something else than its config says.
        """
        return convert(cls, model, {"gpt2": gpt2, "llama": llama})

    def forward(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        starts: Sequence[int] | Int[Tensor, "batch"] | None = None,
        pattern: Pattern | None = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, "batch sequence vocabulary"]:
        """Return the logits of the next token at each position, [batch, sequence, vocabulary].

        Args:
            tokens: token ids, [batch, sequence].
            starts: first real position of each sequence, [batch], with left padding; 0 by default.
            pattern: combined with the model's pattern by `&`.
            caches: a cache for each layer, to which the tokens are appended; see `new_caches`.
        """
        x, pattern = self._embedded(tokens, starts, pattern, caches)
        return self.head(self.norm(self.layers(x, pattern=pattern, caches=caches)))

    def states(
        self,
        tokens: Int[Tensor, "batch sequence"],
        *,
        starts: Sequence[int] | Int[Tensor, "batch"] | None = None,
        pattern: Pattern | None = None,
    ) -> list[Float[Tensor, "batch sequence model_dim"]]:
        """Return the embeddings and the output of each block; arguments as for `forward`."""
        x, pattern = self._embedded(tokens, starts, pattern, None)
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
        x, pattern = self._embedded(tokens, starts, pattern, None)
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
        """Generate tokens.

        Call `eval()` first if the model has dropout.

        Args:
            tokens: the prompts, [batch, sequence].
            num_tokens: largest number of new tokens.
            temperature: 0 for greedy decoding; otherwise sample from softmax(logits / temperature).
            top_k: sample from the k most likely tokens.
            top_p: sample from the fewest tokens with at least this probability in total.
            stop: tokens that end a sequence, which is padded with that token until all have ended.
            starts: first real position of each sequence, [batch], with left padding.
            cached: whether to use key–value caches.
            generator: random generator.

        Returns:
            Prompts and new tokens, [batch, sequence + at most num_tokens].

        Raises:
            ValueError: the prompts are empty, or an argument is out of its range.
        """
        if not tokens.shape[1]:
            raise ValueError("tokens must have at least one position, got none")
        if num_tokens < 0:
            raise ValueError(f"num_tokens must be at least 0, got {num_tokens}")
        caches = self.new_caches() if cached else None
        ends = torch.tensor(sorted(stop), dtype=tokens.dtype, device=tokens.device)
        ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)

        new = tokens
        for _ in range(num_tokens):
            # 1. Logits of the last position. Caches have all tokens but the new ones.
            x, pattern = self._embedded(new if cached else tokens, starts, None, caches)
            last = self.layers(x, pattern=pattern, caches=caches)[:, -1]
            logits = self.head(self.norm(last))

            # 2. The next token; an ended sequence repeats its last one.
            chosen = choose(
                logits, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
            ).to(tokens.dtype)
            chosen = torch.where(ended, tokens[:, -1], chosen)
            new = chosen[:, None]
            tokens = torch.cat([tokens, new], dim=1)

            # 3. Stop when all sequences have ended.
            ended = ended | torch.isin(chosen, ends)
            if bool(ended.all()):
                break
        return tokens

    def _embedded(
        self,
        tokens: Tensor,
        starts: Sequence[int] | Tensor | None,
        pattern: Pattern | None,
        caches: Sequence[KeyValueCache] | None,
    ) -> tuple[Tensor, Pattern | None]:
        """Return the input of the first block, and the pattern."""
        offset = len(caches[0]) if caches else 0
        pattern = intersect(self.pattern, pattern)
        if starts is not None:
            starts = torch.as_tensor(starts, device=tokens.device)
            if starts.shape != tokens.shape[:1]:
                raise ValueError(
                    f"starts must have one entry per sequence, got {starts.numel()} for a batch of "
                    f"{len(tokens)}"
                )
            pattern = intersect(pattern, padding(starts=starts))
        x = self.embedding(tokens, offset=offset, starts=starts)
        return self.dropout(x), pattern
