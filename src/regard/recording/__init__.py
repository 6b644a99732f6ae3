"""A watched run on disk: queries, keys, text and maps of every head, to open anywhere."""

from regard.recording.errors import RecordingError
from regard.recording.opening import open as open
from regard.recording.recording import Recording
from regard.recording.save import save

# Without `open`, which would hide the builtin after an import of everything.
__all__ = ["Recording", "RecordingError", "save"]
