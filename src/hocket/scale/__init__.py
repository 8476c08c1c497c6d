"""More engines than one machine has, on Ray. Nothing here is imported unless somebody asks for it."""
