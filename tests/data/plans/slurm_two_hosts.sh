#!/bin/sh
#SBATCH --job-name=clusterdyno-run20261121191924
#SBATCH --nodes=2-2
#SBATCH --ntasks-per-node=1
#SBATCH '--nodelist=gpu[01-02]'
#SBATCH --no-requeue
#SBATCH --output=/dev/null
#SBATCH --chdir=/
#SBATCH --partition=main
#SBATCH --gres=gpu:8
#SBATCH --time=2:00:00
#SBATCH --exclusive
exec sleep infinity
# network:pytorch:CPU:2:2:1, round 1, gpu01:
#   srun --jobid=$SLURM_JOB_ID --nodelist=gpu01 --nodes=1 --ntasks=1 --mem=0 --overlap --chdir=/ --export=ALL --mpi=none --cpu-bind=none --quiet --cpus-per-task=$SLURM_CPUS_ON_NODE --job-name=clusterdyno-run20261121191924-network_pytorch_cpu_2_2_1-r1-n0 ..., in which run
#     /opt/venv/bin/python -m monitors --log_dir /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/round1/gpu01_noderank0 --vendor cpu --interval 1 --max_seconds 86640 --lock /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/round1/gpu01_noderank0/workload.lock
#     /opt/venv/bin/python -m training.benchmarks.driver.launch --log_dir /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/round1/gpu01_noderank0 --interface auto --max_seconds 86550 --nnodes 2 --node_rank 0 --nproc_per_node 2 --master_addr gpu01 --master_port 29500 --max_restarts 0 -- -m training.benchmarks.network --case_file /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/<sha256>.json --vendor cpu --case network:pytorch:CPU:2:2:1 --data_dir /data
# network:pytorch:CPU:2:2:1, round 1, gpu02:
#   srun --jobid=$SLURM_JOB_ID --nodelist=gpu02 --nodes=1 --ntasks=1 --mem=0 --overlap --chdir=/ --export=ALL --mpi=none --cpu-bind=none --quiet --cpus-per-task=$SLURM_CPUS_ON_NODE --job-name=clusterdyno-run20261121191924-network_pytorch_cpu_2_2_1-r1-n1 ..., in which run
#     /opt/venv/bin/python -m monitors --log_dir /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/round1/gpu02_noderank1 --vendor cpu --interval 1 --max_seconds 86640 --lock /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/round1/gpu02_noderank1/workload.lock
#     /opt/venv/bin/python -m training.benchmarks.driver.launch --log_dir /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/round1/gpu02_noderank1 --interface auto --max_seconds 86550 --nnodes 2 --node_rank 1 --nproc_per_node 2 --master_addr gpu01 --master_port 29500 --max_restarts 0 -- -m training.benchmarks.network --case_file /home/user/.clusterdyno/result/.hosts/run20261121191924/network_pytorch_CPU_2_2_1/<sha256>.json --vendor cpu --case network:pytorch:CPU:2:2:1 --data_dir /data
