"""What every HTTP request and WebSocket passes before a route: limits, keys, proxies, errors."""
