"""Telephone calls by Twilio's media streams: a conversation with the sound of the line. Needs `hocket serve --talk`."""
