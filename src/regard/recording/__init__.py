"""Recordings: queries, keys, text and maps of every head on disk."""

from regard.recording.errors import RecordingError
from regard.recording.opening import open as open
from regard.recording.recording import Recording
from regard.recording.save import save

# Without `open`: `import *` would shadow the builtin.
__all__ = ["Recording", "RecordingError", "save"]
