"""Cluster configs"""

HOSTS = ["10.20.0.11", "10.20.0.12"]
HOSTS_PORTS = ["2222", "2222"]
SSH_PORT = "22"
