"""Cluster configs."""

# Hosts to run the benchmarks on. Each item is an IP address or a host name, also an alias of ~/.ssh/config, or
# "user@host:port", or {"host": ..., "user": ..., "port": ..., "key": ...}. "localhost" needs neither ssh nor Docker.
HOSTS = ["localhost"]

# On Slurm, with RUNTIME = "slurm" in test_conf.py; HOSTS is then a hostlist, or how many (docs/how-to/slurm.md).
# LAUNCHER = "slurm"
# SLURM_PARTITION = "main"
# SLURM_TIME = "2:00:00"

# How to reach them; without effect for localhost. Values here take precedence over ~/.ssh/config.
# SSH_PORT = 22
# SSH_USER = "root"                          # default: the user who runs run.py
# SSH_KEY = "~/.ssh/id_ed25519"              # default: the agent's and the default keys
# KNOWN_HOSTS = "~/.ssh/known_hosts"         # `run.py trust` records unknown keys here
# SSH_CONFIG = ""                            # default: ~/.ssh/config and the system's; "" uses none

# The first port to try for torchrun's master; each round takes the first free one.
# MASTER_PORT = 29500

# Seconds for which a host may be out of reach during a round before it is given up.
# LINK_LIMIT = 120

# The interface for NCCL and Gloo; "auto" takes the one that reaches the first host.
# NETWORK_INTERFACE = "auto"

# Whether each rank is bound to the NUMA node of its device; False leaves placement to the kernel.
# NUMA_BINDING = True
