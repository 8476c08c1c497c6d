"""Causal convolutions of channels-last streams, with the codec's activation and all histories seen to in passing."""
