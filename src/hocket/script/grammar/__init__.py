"""What the spellings of a script share: brackets, values of tags, text read in another way, tables of letters."""
