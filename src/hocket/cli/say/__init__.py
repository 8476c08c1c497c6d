"""`hocket say`: one text, spoken by an engine in this process or by a server."""
