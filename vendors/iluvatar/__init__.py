"""Vendor `iluvatar`: Iluvatar CoreX's accelerators."""
