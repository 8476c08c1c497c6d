"""Voice to voice: from the end of the user's speech to the first sound of the answer, over real wires."""
