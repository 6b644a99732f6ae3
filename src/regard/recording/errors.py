"""What is wrong with a recording."""


class RecordingError(ValueError):
    """A recording is missing, damaged, incomplete or of a later version."""
