"""Pages for a browser: a sweep's `report.html` and `comparison.html`, each one file that needs no network."""
