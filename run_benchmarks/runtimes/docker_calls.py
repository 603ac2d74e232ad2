"""Turns a Docker engine's answers, and missing answers, into the controller's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import docker.errors
import requests

from container.engine_images import UNREADABLE
from run_benchmarks.errors import LinkLostError, TaskError
from run_benchmarks.hosts.base import Host

ValueT = TypeVar("ValueT")
# Exceptions of the SDK for an absent engine, or for another program at its socket.
NO_ANSWER = (docker.errors.DockerException, requests.RequestException, OSError)


def call(host: Host, what: str, action: Callable[[], ValueT]) -> ValueT:
    """Run one request; Docker's answer becomes a TaskError, a broken connection a LinkLostError."""
    try:
        return action()
    except docker.errors.APIError as error:
        raise TaskError(host.name, f"{what}: {error.explanation or error}") from error
    except (*NO_ANSWER, EOFError) as error:
        raise LinkLostError(host.name, f"{what}: the Docker engine did not answer: {error}") from error
    except UNREADABLE as error:
        raise TaskError(host.name, f"{what}: the engine's answer cannot be read: {type(error).__name__}") from error
