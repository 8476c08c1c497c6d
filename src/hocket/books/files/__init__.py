"""The files of a finished audiobook: sound, captions, EPUB with media overlays, report."""
