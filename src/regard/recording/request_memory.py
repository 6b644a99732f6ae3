"""The memory of the requests that a server records, and its bounds."""

from regard.errors import check_positive


class RequestMemory:
    """Counts the bytes of requests, and refuses those beyond the bounds.

    Args:
        max_tokens: maximum tokens of a request.
        max_bytes: maximum bytes of all requests together.
        token_bytes: bytes of a token.

    Raises:
        ValueError: a bound is below 1.
    """

    def __init__(self, max_tokens: int, max_bytes: int, token_bytes: int) -> None:
        check_positive(max_tokens=max_tokens, max_bytes=max_bytes)
        self._max_tokens, self._max_bytes, self._token_bytes = max_tokens, max_bytes, token_bytes
        self._used: dict[str, int] = {}

    def take(self, identifier: str, num_tokens: int) -> str:
        """Take the memory of a request, or give back all of it and return why there is too little.

        Args:
            identifier: its id.
            num_tokens: its number of tokens; what was taken before is kept if it had more.
        """
        others = sum(self._used.values()) - self._used.get(identifier, 0)
        needed = max(self._used.get(identifier, 0), num_tokens * self._token_bytes)
        problem = ""
        if num_tokens > self._max_tokens:
            problem = f"it had {num_tokens:,} tokens, and max_tokens is {self._max_tokens:,}"
        elif others + needed > self._max_bytes:
            problem = (
                f"its {num_tokens:,} tokens took {needed:,} bytes, other requests {others:,}, and "
                f"max_bytes is {self._max_bytes:,}"
            )
        if problem:
            self.free(identifier)
        else:
            self._used[identifier] = needed
        return problem

    def free(self, identifier: str) -> None:
        """Give back the memory of a request."""
        self._used.pop(identifier, None)
