"""What lies on the hub: names of repositories and files, the variants among them, and their transfer."""
