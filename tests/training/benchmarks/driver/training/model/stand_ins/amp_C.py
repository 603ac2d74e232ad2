"""apex's compiled part."""
