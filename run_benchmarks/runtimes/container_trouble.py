"""Finds out from a container's state, and from its engine's events, what ended it or holds it still."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import docker
import docker.errors
import requests

from protocol import safe_json
from protocol.circumstance import Circumstance, CircumstanceKind

ANSWER_SECONDS = 5.0  # for an engine to report the state of a container
ANSWER_CHARACTERS = 500  # of an engine's error message
EVENTS_KEPT = 256  # an engine remembers so many (moby, daemon/events)
LATER = 1.0  # seconds between a container's end and the engine's event of it
OURS = ("10", "SIGUSR1")  # RunningTask.trace


def state_of(client: docker.APIClient, name: str) -> Mapping[str, Any] | None:
    """The state of a container (`State` of the Engine API); None if there is no such container.

    Raises:
        docker.errors.APIError: the engine refuses.
    """
    url = f"{client.base_url}/v{client.api_version}/containers/{quote(name, safe='')}/json"
    response = client.get(url, timeout=ANSWER_SECONDS)
    if response.status_code == requests.codes.not_found:
        return None
    if response.status_code != requests.codes.ok:
        raise docker.errors.APIError(response.text[:ANSWER_CHARACTERS], response)
    state: Mapping[str, Any] = response.json()["State"]
    return state


def trouble(client: docker.APIClient, name: str) -> Circumstance | None:
    """The event that ended a container or holds it up, None if that was its workload or `stop` or is not known.

    Raises:
        docker.errors.APIError: the engine refuses.
        KeyError, TypeError, ValueError: its answer cannot be read.
    """
    state = state_of(client, name)
    if state is None:
        return Circumstance(
            kind=CircumstanceKind.TASK, words="its container was removed, and not by this run (docker rm -f)"
        )
    if state.get("Paused"):
        return Circumstance(kind=CircumstanceKind.PAUSED, words="its container is paused (docker pause)")
    if state["Status"] not in ("exited", "dead"):
        return None
    if state.get("OOMKilled"):
        return Circumstance(
            kind=CircumstanceKind.MEMORY, words="the kernel ended processes of its container for lack of memory"
        )
    return _of_events(list(_events(client, state)), name)


def _of_events(events: list[Mapping[str, Any]], name: str) -> Circumstance | None:
    own = [event for event in events if event["Actor"]["Attributes"].get("name") == name]
    actions = [str(event["Action"]) for event in own]
    kills = [str(event["Actor"]["Attributes"].get("signal")) for event in own if event["Action"] == "kill"]
    if any(signal not in OURS for signal in kills):
        words = "its container was stopped, and not by this run (docker stop or docker kill)"
        return Circumstance(kind=CircumstanceKind.TASK, words=words)
    if "start" not in actions and len(events) < EVENTS_KEPT:
        return Circumstance(kind=CircumstanceKind.ENGINE, words="its Docker engine was stopped and started again")
    return None


def _events(client: docker.APIClient, state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The events of the engine's containers until shortly after the end of one in this state."""
    until = datetime.fromisoformat(state["FinishedAt"]).timestamp() + LATER
    url = f"{client.base_url}/v{client.api_version}/events"
    query = {"since": "0", "until": f"{until:.3f}", "filters": '{"type": ["container"]}'}
    response = client.get(url, params=query, timeout=ANSWER_SECONDS)
    response.raise_for_status()
    for line in response.text.splitlines():
        event = safe_json.load(line)
        if isinstance(event, dict):
            yield event
