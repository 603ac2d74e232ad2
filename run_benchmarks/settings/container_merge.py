"""Merges a vendor's container options with the user's: the user's win, and replaced options are reported."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from run_benchmarks.settings.container_options import ContainerOptions, Ulimit, Volume, is_cdi_name

ItemT = TypeVar("ItemT")
SINGLE = {
    "gpus": "--gpus", "runtime": "--runtime", "ipc": "--ipc", "shm_size": "--shm-size", "memory": "--memory",
    "pids_limit": "--pids-limit", "privileged": "--privileged",
}  # fmt: skip


def merged(vendor: ContainerOptions, user: ContainerOptions | None, setting: str) -> tuple[ContainerOptions, list[str]]:
    """The merged options, and a sentence for each option of the vendor that the user's replaces.

    Args:
        user: None if the user wrote none.
        setting: the name of the user's setting, for the sentences.
    """
    if user is None:
        return vendor, []
    said: list[str] = []

    def tell(option: str, wanted: object, instead_of: object) -> None:
        said.append(f"{option} {wanted} of {setting} replaces the vendor's {instead_of}")

    def joined(
        option: str,
        ours: Iterable[ItemT],
        theirs: Iterable[ItemT],
        key: Callable[[ItemT], str],
        words: Callable[[ItemT], str],
    ) -> tuple[ItemT, ...]:
        wanted = {key(item): item for item in theirs}
        kept = []
        for item in ours:
            instead = wanted.get(key(item))
            if instead is None:
                kept.append(item)
            elif instead != item:
                tell(option, words(instead), words(item))
        return (*kept, *theirs)

    changes: dict[str, object] = {}
    for field in user.model_fields_set & SINGLE.keys():
        wanted, instead_of = getattr(user, field), getattr(vendor, field)
        changes[field] = wanted
        if field in vendor.model_fields_set and wanted != instead_of:
            tell(SINGLE[field], wanted, instead_of)
    environment = joined(
        "-e",
        vendor.environment.items(),
        user.environment.items(),
        key=lambda item: item[0],
        words=lambda item: item[0],  # a value may be a secret
    )
    changes |= {
        "devices": joined("--device", vendor.devices, user.devices, _device_target, str),
        "cap_add": joined("--cap-add", vendor.cap_add, user.cap_add, _capability, str),
        "group_add": joined("--group-add", vendor.group_add, user.group_add, str, str),
        "security_opt": joined("--security-opt", vendor.security_opt, user.security_opt, _security_key, str),
        "ulimits": joined("--ulimit", vendor.ulimits, user.ulimits, lambda limit: limit.name, _ulimit_words),
        "volumes": joined("-v", vendor.volumes, user.volumes, lambda volume: volume.target, _volume_words),
        "environment": dict(environment),
    }
    return vendor.model_copy(update=changes), sorted(said)


def _device_target(text: str) -> str:
    source, _, rest = text.partition(":")
    return text if is_cdi_name(text) else rest.partition(":")[0] or source


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _security_key(text: str) -> str:
    return text.replace(":", "=").partition("=")[0]


def _ulimit_words(limit: Ulimit) -> str:
    return f"{limit.name}={limit.soft}" if limit.soft == limit.hard else f"{limit.name}={limit.soft}:{limit.hard}"


def _volume_words(volume: Volume) -> str:
    return f"{volume.source}:{volume.target}{':ro' if volume.read_only else ''}"
