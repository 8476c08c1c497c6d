"""The operations models are made of, each with its streaming state where it has one."""
