"""A watched run on disk: queries, keys, text and maps of every head, to open anywhere."""

from regard.recording.errors import RecordingError
from regard.recording.opening import open
from regard.recording.recorded_call import RecordedCall
from regard.recording.recording import Recording
from regard.recording.save import save

__all__ = ["RecordedCall", "Recording", "RecordingError", "open", "save"]
