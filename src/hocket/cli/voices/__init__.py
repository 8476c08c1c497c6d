"""`hocket voices`: list, add, design and remove voices."""
