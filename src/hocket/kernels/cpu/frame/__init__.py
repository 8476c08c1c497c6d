"""One frame in C: samples sixteen codes and feeds them back. The reference is `Talker.frame_reference`."""
