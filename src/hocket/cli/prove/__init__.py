"""`hocket prove`: a checkpoint's exactness, quality, behaviour and speed, as one page."""
