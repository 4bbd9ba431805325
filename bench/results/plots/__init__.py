"""Pictures of a sweep, from its records; `write.py` is the way in."""
