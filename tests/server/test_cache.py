"""The cache of answers, by itself."""

from regard.server.cache import Answer, Cache


def answer(size: int) -> Answer:
    return Answer.of(bytes(size), "application/json")


def test_the_oldest_go_first_and_use_makes_young() -> None:
    cache = Cache(limit=4000)
    for name in "abc":
        cache.put(name, answer(700))
    assert cache.get("a") is not None
    cache.put("d", answer(700))
    assert [name for name in "abcd" if cache.get(name) is None] == ["b"]


def test_bytes_are_counted() -> None:
    cache = Cache(limit=10_000)
    cache.put("aa", answer(1000))
    one = cache.bytes
    assert one >= 1000
    cache.put("aa", answer(1000))
    assert (cache.bytes, len(cache)) == (one, 1)
    for number in range(50):
        cache.put(f"{number:02}", answer(1000))
        assert cache.bytes <= 10_000
    assert cache.bytes == len(cache) * one


def test_keys_are_counted() -> None:
    cache = Cache(limit=100_000)
    for letter in "abcdefghij":
        cache.put(("digest", (letter * 5000,)), answer(10))
    assert 50_000 < cache.bytes < 60_000


def test_what_is_too_large_is_not_kept() -> None:
    cache = Cache(limit=1000)
    cache.put("small", answer(10))
    cache.put("large", answer(2000))
    assert cache.get("large") is None
    assert cache.get("small") is not None


def test_names_of_bytes_differ_as_the_bytes_do() -> None:
    assert answer(3).etag == answer(3).etag
    assert answer(3).etag != answer(4).etag
