#!/usr/bin/env bash
# Installs the Debian packages of programs that the tests need and this machine lacks. Starts nothing itself.
# Without root or apt-get it changes nothing: the tests say themselves what they lack.
set -euo pipefail

declare -A package=(
    [dockerd]=docker.io
    [docker]=docker.io
    [sshd]=openssh-server
    [ssh]=openssh-client
    [ssh-keygen]=openssh-client
    [ip]=iproute2
    [iptables]=iptables
    [nsenter]=util-linux
    [debootstrap]=debootstrap
    [ping]=iputils-ping # the largest frame that passes: tests/cluster/test_check.py
    [ps]=procps
    [fish]=fish # login shells of other kinds
    [tcsh]=tcsh
    [chromium]=chromium # opens the pages that the product writes
    [clush]=clustershell # what tests/performance compares with
    [parallel-ssh]=pssh
    [slurmctld]=slurmctld # tests/cluster/slurm
    [slurmd]=slurmd
    [slurmdbd]=slurmdbd
    [sbatch]=slurm-client
    [munged]=munge
    [mariadbd]=mariadb-server
    [mariadb]=mariadb-client
    [pg_ctlcluster]=postgresql # tests/postgres.py
    [g++]=g++ # tests/vendors/building.py, and what torch compiles
    [gcc]=gcc # tests/vendors/scripted_nvml.c
    [shellcheck]=shellcheck # judges the batch scripts that the product writes
)

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    exit 0
fi
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=()
for program in "${!package[@]}"; do
    if ! command -v "$program" >/dev/null; then
        missing+=("${package[$program]}")
    fi
done
[ -e /usr/include/slurm/spank.h ] || missing+=(libslurm-dev) # tests/cluster/slurm/container.c
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
echo "installing: ${missing[*]}"
apt-get update
# From Debian 13 on the docker command is a package of its own.
if [[ " ${missing[*]} " == *" docker.io "* ]] && apt-cache show docker-cli >/dev/null 2>&1; then
    missing+=(docker-cli)
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
