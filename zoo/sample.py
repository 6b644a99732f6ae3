"""The types that CI runs, with what is found of them: small ones, of every kind."""

SAMPLE: dict[str, str] = {}
