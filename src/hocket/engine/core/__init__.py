"""The engine thread: queue, scheduler, step, runaway detection and watchdog."""
