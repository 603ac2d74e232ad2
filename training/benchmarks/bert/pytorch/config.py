"""Settings of BERT pretraining in PyTorch. Needs no torch: the controller validates case configs with it."""

from training.benchmarks.bert.settings import BertSettings

ENTRY_MODULE = "training.benchmarks.bert.pytorch.run_pretraining"


class Config(BertSettings):
    """BERT (Devlin et al. 2019) in PyTorch; the defaults are BERT-Large's sizes."""
