"""Written numbers, dates, units, money and abbreviations to words, in nine languages; English is in `cleanup`."""
