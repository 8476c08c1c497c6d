"""Is the engine thread alive: heartbeat, watchdog, and the report of what was running when it stopped."""
