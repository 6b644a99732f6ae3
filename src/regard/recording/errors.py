"""The error of recordings."""


class RecordingError(ValueError):
    """A recording is missing, damaged, incomplete or of a later version."""
