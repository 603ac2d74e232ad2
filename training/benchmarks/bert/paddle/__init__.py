"""BERT pretraining in PaddlePaddle."""
