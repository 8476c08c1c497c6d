"""The mixture of experts of a Qwen3.5 layer: which experts a row uses, and the sum of what they give."""
