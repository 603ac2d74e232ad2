# LLaMA-2 7B on hosts of eight Ascend 910B.
# The published values but for the layout: the memory estimate decides how much is computed again.
layout = "auto"
