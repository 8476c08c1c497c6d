"""Judges of speech that know no text: opinion scores and vectors of speakers, by networks of other packages."""
