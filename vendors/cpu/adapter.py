"""Vendor `cpu`: hosts without accelerators; gloo carries the collectives."""

from typing import NoReturn

from vendors.base import ImageParameters, ProbeUnavailable, Vendor


def _open_probe() -> NoReturn:
    raise ProbeUnavailable("vendor cpu has no accelerator")


VENDOR = Vendor(
    name="cpu",
    visible_devices_env="",
    backend="gloo",
    container_options="",
    images={
        "pytorch": ImageParameters(
            template="pytorch.Dockerfile.j2",
            base_image="python:3.11-slim",
            # PyPI's torch for Linux brings gigabytes of CUDA; PyTorch's own index has CPU builds.
            options={"extra_index_url": "https://download.pytorch.org/whl/cpu"},
        ),
        "paddle": ImageParameters(
            template="paddle.Dockerfile.j2",
            base_image="python:3.11-slim",
            requirements="paddle.txt",
        ),
    },
    open_probe=_open_probe,
)
