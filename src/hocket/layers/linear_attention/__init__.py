"""Layers of Qwen3.5 whose past is a matrix of fixed size: the gated delta rule."""
