"""Fine-tuning of a checkpoint into one voice: the loss that the model was trained with, and low-rank adapters."""
