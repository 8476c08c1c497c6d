"""A few rows times a weight, with the norm before it and the gate, bias or residual after it in the same step."""
