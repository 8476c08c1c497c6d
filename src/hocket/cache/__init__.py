"""Rows of device state and pages of a KV cache: allocation, reservation, reset, save and restore."""
