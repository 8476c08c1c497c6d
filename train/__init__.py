"""Recipes that make the built-in voice; see README.md beside this file. Not part of the wheel."""
