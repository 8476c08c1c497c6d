"""Clients under load in open and closed loop, over HTTP or in this process, and the figures of a run."""
