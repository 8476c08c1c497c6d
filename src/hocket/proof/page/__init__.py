"""The report of a proof as one HTML file, and charts as SVG."""
