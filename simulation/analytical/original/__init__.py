"""The analytical model exactly as SimAI 1.7 computes it, its mistakes and its 32-bit floats included."""
