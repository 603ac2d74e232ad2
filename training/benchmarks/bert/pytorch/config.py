"""Settings of BERT pretraining in PyTorch. Needs no torch: the controller validates case configs with it."""

from training.benchmarks.bert.settings import BertSettings

ENTRY_MODULE = "training.benchmarks.bert.pytorch.run_pretraining"


class Config(BertSettings):
    """See BertSettings."""
