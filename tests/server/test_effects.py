"""Maps of effects: what the server and a publication say of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import AttentionMatrix, causal
from regard.calls import AttentionCall
from regard.matrix.derived import Effects
from regard.recording import Recording, save
from regard.server import publish
from regard.server.publication import planned
from tests.server.made import Made
from tests.server.running import Running, served
from tests.server.viewing import Viewing

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS = 300


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    chance = torch.Generator().manual_seed(0)
    calls: list[AttentionCall] = []
    for layer in range(2):
        query, key, value, gradient = torch.randn(4, 1, 2, TOKENS, 8, generator=chance)
        matrix = AttentionMatrix(query, key, pattern=causal())
        effects = Effects(matrix.view.source, value, gradient)
        call = AttentionCall.of(matrix, f"layers.{layer}", index=layer, recorded_effects=effects)
        calls.append(call)
    tokens = [f" word{number}" for number in range(TOKENS)]
    path = tmp_path_factory.mktemp("effects") / "effects.regard"
    return save(calls, path, tokens=tokens, target="<b>Berlin</b>", progress=False)


@pytest.fixture(scope="module")
def running(recording: Recording) -> Iterator[Running]:
    with served(recording) as found:
        yield found


def test_the_target_and_the_largest_effect_are_told(running: Running, recording: Recording) -> None:
    found = running.get(f"/data/{recording.digest}/info.json").json()
    largest = max(float(call.effects[0].dense().abs().max()) for call in recording)
    assert found["effects"]["target"] == "<b>Berlin</b>"
    assert found["effects"]["largest"] == pytest.approx(largest, rel=2e-4)
    assert found["measures"][-1]["name"] == "effect"
    assert found["calls"][1]["measures"]["effect"] == recording.measures(1)["effect"]


def test_a_tile_is_that_of_the_recording(running: Running, recording: Recording) -> None:
    deepest = running.tile(recording.digest, "c1-h0-effect", 1, 0, 0)
    wanted = recording[1].effects[0, 0, :256, :256].dense().numpy()
    above = np.triu_indices(256, 1)
    assert np.isnan(deepest[above]).all()
    deepest = np.nan_to_num(deepest)
    np.testing.assert_allclose(deepest, wanted, rtol=1e-6, atol=1e-9)
    assert (deepest < 0).any()
    for tileset, of in (("c0-hmean-effect", 0), ("all-effect", "all")):
        found = running.tile(recording.digest, tileset, 0, 0, 0)
        wanted = recording.tile(of, "mean", 0, 0, 0, "effect")
        np.testing.assert_allclose(found, wanted, rtol=3e-4)


def test_recordings_without_effects_have_none(book: Made) -> None:
    with served(book.recording) as plain:
        assert plain.get(f"/data/{book.digest}/info.json").json()["effects"] is None
        answer = plain.get(f"/data/{book.digest}/tiles/c0-h0-effect/0/0/0.bin")
    assert (answer.status_code, answer.json()["error"].split(": ")[-1]) == (
        404,
        "call 0 (model.layers.0.self_attn) has no effects",
    )
    with pytest.raises(ValueError, match="pools must be mean or max, got max, effect"):
        planned(book.recording, pools=["max", "effect"])


def test_a_publication_with_effects(running: Running, recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pools must have max if they have effect, got effect"):
        planned(recording, pools=["effect"])
    pools = ["max", "effect"]
    publish(recording, tmp_path / "site", heads=["1.0", "mean"], pools=pools, progress=False)
    folder = tmp_path / "site" / "data" / recording.digest
    assert {path.name for path in folder.glob("lines/*")} == {
        "c1-h0-received-max",
        "c1-h0-entropy-max",
    }
    for tileset in ("c1-h0-effect", "all-effect"):
        path = f"tiles/{tileset}/0/0/0.bin"
        asked = running.get(f"/data/{recording.digest}/{path}").content
        assert (folder / path).read_bytes() == asked


@pytest.mark.slow
def test_the_map_shows_them(viewing: Viewing, recording: Recording) -> None:
    with served(recording, static=None) as site:
        view = viewing.open(site.url, "#heads=c1-h0&pool=effect&scale=linear&x=80,120&y=80,120")
        assert view.page.inner_text(".legend-words") == "effect on <b>Berlin</b>"
        effects = recording[1].effects[0, 0, 80:120, 80:120].dense()
        pixels = view.pixels()
        for place in (int(effects.argmax()), int(effects.argmin())):
            query, key = 80 + place // 40, 80 + place % 40
            value = float(effects.flatten()[place])
            assert view.ask(f"map.valueAt({key}, {query})")["value"] == pytest.approx(value)
            left, top = view.place(key, query)
            red, _, blue = (int(x) for x in pixels[round(top), round(left)])
            # Blue supports, orange opposes.
            assert (blue > red) == (value > 0)
            view.page.mouse.move(left, top)
            words = f"{value:.4f}".replace("-", "−")
            view.until(lambda words=words: words in view.readout(), f"{words} is read out")
        view.page.keyboard.press("m")
        view.until(lambda: view.ask("map.look().pool") == "mean", "the mean of weights is shown")
        view.page.select_option("#sorted-by", "effect")
        about = "effect: effect on <b>Berlin</b>: gradient · output, summed"
        view.until(lambda: about in view.page.inner_text("body"), "the measure is named")
