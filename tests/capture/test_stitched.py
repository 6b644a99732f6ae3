"""Generated texts: the calls of prompt and steps, joined, are those of one pass over all tokens."""

from typing import Any

import pytest
import torch
from torch import nn

import regard
import regard.hf
from regard.capture import Seen
from regard.models import TextDecoder
from tests.capture.generating import (
    LAYERS,
    NEW,
    PROMPT,
    TRANSLATORS,
    WRITERS,
    generate,
    longer,
    padded,
    same_rows,
    translator,
    whole,
    writer,
)
from tests.capture.zoo import BATCH, ZOO, made, tokens
from tests.installed import needs_asking

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


class TestGenerate:
    @pytest.mark.pairwise
    @pytest.mark.parametrize("padding", ["none", "left"])
    @pytest.mark.parametrize("cache", ["dynamic", "static"])
    @pytest.mark.parametrize("name", WRITERS)
    def test_as_one_pass(self, name: str, cache: str, padding: str) -> None:
        model = writer(name)
        prompt, there = tokens(length=PROMPT), padded(padding, PROMPT)
        expected = generate(model, prompt, there, cache_implementation=cache)
        with regard.watch(model) as seen:
            written = generate(model, prompt, there, cache_implementation=cache)
        assert torch.equal(written, expected)
        assert written.shape == (BATCH, PROMPT + NEW)
        assert len(seen) == LAYERS * NEW
        seen.verify()
        stitched = seen.stitched()
        stitched.verify()
        assert [call.index for call in stitched] == list(range(LAYERS))
        same_rows(stitched, whole(model, written, there), there)

    @pytest.mark.parametrize("offload", [None, "cpu"])
    @pytest.mark.parametrize("keep", ["tensors", "copies"])
    @pytest.mark.parametrize("name", ["Llama", "Mistral"])
    def test_however_it_is_kept(self, name: str, keep: str, offload: str | None) -> None:
        model = writer(name)
        prompt, there = tokens(length=PROMPT), padded("left", PROMPT)
        with regard.watch(model, keep=keep, offload=offload, check=False) as seen:
            written = generate(model, prompt, there)
        same_rows(seen.stitched(), whole(model, written, there), there)

    @pytest.mark.parametrize("cache", ["dynamic", "static"])
    @pytest.mark.parametrize("name", ["Llama", "Mistral", "Gemma 2"])
    @pytest.mark.parametrize("length", [1, 2])
    def test_short_prompts(self, length: int, name: str, cache: str) -> None:
        model = writer(name)
        prompt, there = tokens(length=length), torch.ones(BATCH, length, dtype=torch.long)
        with regard.watch(model) as seen:
            # Until a window is full, and longer.
            written = generate(model, prompt, there, new=12, cache_implementation=cache)
        same_rows(seen.stitched(), whole(model, written, there))

    @pytest.mark.parametrize("name", ["eager", "regard"])
    @pytest.mark.parametrize("writes", ["Llama", "Mistral"])
    def test_other_kernels(self, writes: str, name: str) -> None:
        model = writer(writes, "eager")
        if name == "regard":
            regard.hf.use(model)
        prompt, there = tokens(length=PROMPT), padded("left", PROMPT)
        with regard.watch(model) as seen:
            written = generate(model, prompt, there)
        assert {call.kernel for call in seen} == {name}
        same_rows(seen.stitched(), whole(writer(writes), written, there), there)

    @pytest.mark.parametrize("parts", [(10, 1, 1, 5, 6), (1, 10, 3), (23, 1)])
    @pytest.mark.parametrize("name", WRITERS)
    def test_in_chunks(self, name: str, parts: tuple[int, ...]) -> None:
        model = writer(name)
        fed, past, done = tokens(length=sum(parts)), None, 0
        with regard.watch(model) as seen, torch.no_grad():
            for part in parts:
                chunk = fed[:, done : done + part]
                past = model(chunk, past_key_values=past, use_cache=True).past_key_values
                done += part
        with regard.watch(model) as expected, torch.no_grad():
            model(fed, use_cache=False)
        seen.verify()
        assert len(seen) == LAYERS * len(parts)
        same_rows(seen.stitched(), expected)

    @pytest.mark.parametrize("padding", ["none", "left"])
    @pytest.mark.parametrize(
        ("positions", "window"),
        [("learned", None), ("rotary", 5), ("alibi", None), ("relative", 5)],
    )
    def test_our_decoder(self, positions: str, padding: str, window: int | None) -> None:
        torch.manual_seed(0)
        near = regard.causal() if window is None else regard.causal() & regard.window(before=window)
        decoder = TextDecoder(
            50, 24, LAYERS, 4, num_key_heads=2, position_encoding=positions, pattern=near
        ).eval()
        for parameter in decoder.parameters():
            nn.init.normal_(parameter, std=0.3)
        prompt, there = tokens(length=PROMPT), padded(padding, PROMPT)
        starts = PROMPT - there.sum(dim=1) if padding == "left" else None
        with regard.watch(decoder) as seen:
            written = decoder.generate(prompt, NEW, starts=starts)
        with regard.watch(decoder) as expected:
            decoder(written[:, :-1], starts=starts)
        assert len(seen) == LAYERS * NEW
        same_rows(seen.stitched(), expected, there)
        for call, matrix in zip(
            seen.stitched(), decoder.matrices(written[:, :-1], starts=starts), strict=True
        ):
            rows = longer(there, PROMPT + NEW - 1).bool()
            weights, others = (x.dense().transpose(1, 2)[rows] for x in (call.matrix, matrix))
            torch.testing.assert_close(weights, others, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("padding", ["none", "left", "right"])
    @pytest.mark.parametrize("cache", ["dynamic", "static"])
    @pytest.mark.parametrize("name", TRANSLATORS)
    def test_two_languages(self, name: str, cache: str, padding: str) -> None:
        model = translator(name)
        source, there = tokens(length=PROMPT), padded("left", PROMPT)
        there = {"none": torch.ones_like(there), "left": there, "right": there.flip(1)}[padding]
        expected_text = generate(model, source, there, cache_implementation=cache)
        with regard.watch(model) as seen:
            written = generate(model, source, there, cache_implementation=cache)
        assert torch.equal(written, expected_text)
        with regard.watch(model) as expected, torch.no_grad():
            model(source, attention_mask=there, decoder_input_ids=written[:, :-1], use_cache=False)
        stitched = seen.stitched()
        stitched.verify()
        decoder = [call for call in stitched if "decoder" in call.module]
        assert [call.kind for call in decoder] == ["self", "cross"] * LAYERS
        assert {call.queries for call in decoder} == {NEW}
        assert {call.keys for call in decoder if call.kind == "cross"} == {PROMPT}
        encoder = [n for n, call in enumerate(stitched) if "decoder" not in call.module]
        # Rows of padding in the source aren't compared.
        same_rows(Seen([stitched[n] for n in encoder]), Seen([expected[n] for n in encoder]), there)
        rest = [n for n in range(len(stitched)) if n not in encoder]
        same_rows(Seen([stitched[n] for n in rest]), Seen([expected[n] for n in rest]))


class TestTexts:
    @pytest.mark.parametrize("second", ["another", "the same", "longer", "shorter"])
    @pytest.mark.parametrize("name", ["Llama", "Mistral", "Gemma 3"])
    def test_two_in_one_block(self, name: str, second: str) -> None:
        model = writer(name)
        one = tokens(length=PROMPT)
        two = {
            "another": tokens(6, PROMPT),
            "the same": one,
            "longer": tokens(length=PROMPT + 3),
            "shorter": tokens(6, 4),
        }[second]
        with regard.watch(model) as seen:
            written = [generate(model, prompt, torch.ones_like(prompt)) for prompt in (one, two)]
        stitched = seen.stitched()
        assert len(stitched) == 2 * LAYERS
        for number, (prompt, final) in enumerate(zip((one, two), written, strict=True)):
            mine = stitched[number * LAYERS : (number + 1) * LAYERS]
            same_rows(mine, whole(model, final, torch.ones_like(prompt)))

    @pytest.mark.parametrize("second", ["another", "the same"])
    @pytest.mark.parametrize("name", TRANSLATORS)
    def test_two_translations(self, name: str, second: str) -> None:
        model = translator(name)
        sources = [tokens(length=PROMPT), tokens(6 if second == "another" else 5, PROMPT)]
        with regard.watch(model) as seen:
            written = [generate(model, source, torch.ones_like(source)) for source in sources]
        stitched = seen.stitched()
        with regard.watch(model) as expected, torch.no_grad():
            for source, final in zip(sources, written, strict=True):
                model(source, decoder_input_ids=final[:, :-1], use_cache=False)
        by_module = [sorted(x, key=lambda call: call.module) for x in (stitched, expected)]
        same_rows(*(Seen(calls) for calls in by_module))

    @pytest.mark.parametrize("name", ["Llama", "ALBERT", "BERT", "T5"])
    def test_without_generation_nothing_is_joined(self, name: str) -> None:
        kind = ZOO[name]
        needs_asking(kind.model)
        model = made(kind)
        with regard.watch(model) as seen, torch.no_grad():
            model(**kind.inputs("none"))
            model(**{**kind.inputs("none"), "input_ids": tokens(9)})
        stitched = seen.stitched()
        assert [call.module for call in stitched] == [call.module for call in seen]
        for call, other in zip(stitched, seen, strict=True):
            assert (call.index, repr(call)) == (other.index, repr(other))
            assert call.view is other.view

    def test_batches_of_different_sizes(self) -> None:
        model = writer("Llama")
        with regard.watch(model) as seen:
            for count in (3, 1):
                prompt = tokens(length=PROMPT)[:count]
                generate(model, prompt, torch.ones_like(prompt), new=3)
        assert [call.batch for call in seen.stitched()] == [3] * LAYERS + [1] * LAYERS

    def test_texts_in_turn(self) -> None:
        """Two caches, and a token for each in turn: it can't be told which text goes on."""
        model = writer("Llama")
        pasts: list[Any] = [None, None]
        with regard.watch(model) as seen, torch.no_grad():
            for step in range(3):
                for number in range(2):
                    chunk = tokens(20 + number, 3)[:, step : step + 1]
                    past = model(chunk, past_key_values=pasts[number], use_cache=True)
                    pasts[number] = past.past_key_values
        with pytest.raises(
            ValueError, match=r"earlier keys that differ from those of the call before"
        ):
            seen.stitched()

    def test_nothing(self) -> None:
        assert len(Seen([]).stitched()) == 0


class TestMemory:
    @pytest.mark.parametrize("cache", ["dynamic", "static"])
    @pytest.mark.parametrize("name", ["Llama", "GPT-2"])
    def test_keys_are_kept_once(self, name: str, cache: str) -> None:
        model = writer(name)
        prompt, new = tokens(length=PROMPT), 25
        with regard.watch(model) as seen:
            generate(model, prompt, torch.ones_like(prompt), new=new, cache_implementation=cache)
        for layer in range(LAYERS):
            calls = seen[layer::LAYERS]
            assert len({call.module for call in calls}) == 1
            kept = {s.data_ptr(): s.nbytes() for s in (c.key.untyped_storage() for c in calls)}
            one = calls[0].key[:, :, :1].numel() * torch.float32.itemsize
            assert sum(kept.values()) <= (PROMPT + new) * one
            # Each has as many as it had, and a query each.
            if cache == "dynamic":
                assert [call.key.shape[2] for call in calls] == [PROMPT + n for n in range(new)]
            queries = {s.data_ptr(): s.nbytes() for s in (c.query.untyped_storage() for c in calls)}
            size = calls[0].query[:, :, :1].numel() * torch.float32.itemsize
            assert sum(queries.values()) == (PROMPT + new - 1) * size

    def test_keys_of_the_source_are_kept_once(self) -> None:
        model = translator("BART")
        source = tokens(length=PROMPT)
        with regard.watch(model) as seen:
            generate(model, source, torch.ones_like(source))
        calls = [call for call in seen if call.kind == "cross"]
        assert len(calls) == LAYERS * NEW
        assert len({call.key.data_ptr() for call in calls}) == LAYERS

    def test_a_window_keeps_no_more_than_itself(self) -> None:
        model = writer("Mistral")
        prompt = tokens(length=PROMPT)
        with regard.watch(model) as seen:
            generate(model, prompt, torch.ones_like(prompt), new=20)
        window = ZOO["Mistral"].config.sliding_window
        assert all(call.key.untyped_storage().nbytes() <= window * BATCH * 2 * 8 * 4
                   for call in seen[LAYERS:])  # fmt: skip
