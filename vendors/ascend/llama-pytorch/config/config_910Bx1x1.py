# A LLaMA of 1.3 billion parameters on Ascend 910B, one host, one device: 100 steps on data made on the fly.
extends = "config_short_7b"
num_layers = 24
hidden_size = 2048
num_attention_heads = 16
num_key_value_heads = 16
ffn_hidden_size = 5504
nominal_parameters = None
train_batch_size = 2
eval_batch_size = 2
strategy = "ddp"
