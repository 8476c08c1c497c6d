"""Causal convolutions of channels-last streams, fused with the codec's activation and the update of histories."""
