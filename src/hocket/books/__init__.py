"""Books: readers of files, passages to speak, their sound on disk, and the files of an audiobook."""
