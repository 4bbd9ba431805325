"""A declarative experiment runner for PyTorch inference serving."""
