"""Turns a Docker engine's answers, and missing answers, into the controller's errors."""

from collections.abc import Callable
from typing import Any, TypeVar

import docker.errors
import requests
from docker import APIClient

from container.engine_images import UNREADABLE
from run_benchmarks.errors import EngineSilentError, LinkLostError, TaskError
from run_benchmarks.hosts.base import Host

ValueT = TypeVar("ValueT")
ANSWER_SECONDS = 10.0  # for an engine to answer a question that costs it nothing
ANSWER_CHARACTERS = 500  # of an engine's error message
# Exceptions of the SDK for an absent engine, or for another program at its socket.
NO_ANSWER = (docker.errors.DockerException, requests.RequestException, OSError)


def call(host: Host, what: str, action: Callable[[], ValueT]) -> ValueT:
    """Run one request.

    Raises:
        TaskError: Docker refused it, or its answer cannot be read.
        EngineSilentError: no answer came in time.
        LinkLostError: the connection broke.
    """
    try:
        return action()
    except docker.errors.APIError as error:
        raise TaskError(host.name, f"{what}: {error.explanation or error}") from error
    except (*NO_ANSWER, EOFError) as error:
        timed_out = isinstance(error, requests.Timeout) or "timed out" in str(error).lower()
        kind = EngineSilentError if timed_out else LinkLostError
        raise kind(host.name, f"{what}: the Docker engine did not answer: {error}") from error
    except UNREADABLE as error:
        raise TaskError(host.name, f"{what}: the engine's answer cannot be read: {type(error).__name__}") from error


def ask(client: APIClient, path: str, **parameters: str) -> Any:
    """The engine's answer to a question of its API, within ANSWER_SECONDS: one that is frozen is known by then.

    Raises:
        docker.errors.APIError: it refused the question.
        requests.RequestException: it did not answer in time.
        ValueError: the answer is no JSON.
    """
    url = f"{client.base_url}/v{client.api_version}/{path}"
    response = client.get(url, params=parameters, timeout=ANSWER_SECONDS)
    if response.status_code != requests.codes.ok:
        raise docker.errors.APIError(response.text[:ANSWER_CHARACTERS], response)
    return response.json()
