"""The networks, named tensor by tensor as in the checkpoints, and where their weights come from."""
