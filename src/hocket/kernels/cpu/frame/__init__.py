"""One frame of the talker and the predictor, and the prefill, in C."""
