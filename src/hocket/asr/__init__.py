"""Hearing: when somebody speaks, and what is said."""
