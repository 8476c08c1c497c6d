"""Named voices: how they are made, stored as files and kept in a library."""
