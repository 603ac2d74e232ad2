# One CPU host, two ranks, over gloo: a tiny Llama-3, four query heads to a key-value head, with its rotary base.
extends = "config_CPUx1x2"
num_key_value_heads = 1
rope_theta = 500000.0
vocab_size = 160
seq_length = 64
