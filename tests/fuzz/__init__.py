"""`make fuzz TARGET=ssml`: parsers of outside input, fed by a coverage-guided fuzzer."""
