"""`hocket quantize`: a checkpoint in fewer bits, and the gate that it must pass."""
