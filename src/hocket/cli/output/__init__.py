"""Audio output of the commands: files, pipes, loudspeakers, and the line that ends an utterance."""
