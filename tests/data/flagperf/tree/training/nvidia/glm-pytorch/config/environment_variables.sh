export NCCL_IB_HCA="mlx5_0,mlx5_1"  # the site's
export LD_LIBRARY_PATH=/opt/site/lib:${LD_LIBRARY_PATH}
