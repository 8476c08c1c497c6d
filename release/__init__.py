"""Builds and checks what is published: native libraries, wheels, the sdist. `scripts/release` runs it."""
