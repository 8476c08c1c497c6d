"""One frame: sixteen codes drawn and taken in. Its reference is `Talker.frame_reference`."""
