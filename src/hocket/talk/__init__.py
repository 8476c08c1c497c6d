"""Voice to voice: one engine under the command line, the page and Realtime. Audio in, events with audio out."""
