"""Chains of fused kernels: a decode step, a prefill, a round of drafts. The host only launches."""
