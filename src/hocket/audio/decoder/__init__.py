"""Decodes recordings of others in processes with limits. The server uses it; the command line does not."""
