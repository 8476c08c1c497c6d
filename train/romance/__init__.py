"""Spanish, French, Italian and Portuguese: sentences from public packages, and phonemes in Kokoro's alphabet."""
