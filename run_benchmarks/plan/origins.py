"""Says where each value of a case comes from: a default, a file and its key, --set, or the vendor."""

from collections.abc import Mapping
from pathlib import Path

from protocol.case_config import DEFAULT
from protocol.config_file import OVERRIDE
from run_benchmarks.settings.case import CaseSettings
from run_benchmarks.settings.changes import REPEAT
from run_benchmarks.settings.settings import Settings

# Parts of a path in the repository: vendors/<vendor>/<model>-<framework>/config/<config>.py and
# training/benchmarks/<model>/<framework>/base.py.
PARTS_OF_A_CONFIG = 5
# Settings of a case, and the key of test_conf.py that applies if the case has none.
OF_THE_CASE = {
    "nnodes": None, "nproc": None, "repeat": None, "time_limit": "TIME_LIMIT", "stall_limit": "STALL_LIMIT",
    "retries": None, "predict": None, "data_dir_host": None, "expect": None,
}  # fmt: skip


def repository_path(path: Path) -> str:
    """The path of a case config or base.py in the repository, for any folder that the repository is in."""
    return Path(*path.parts[-PARTS_OF_A_CONFIG:]).as_posix()


def config_origins(name: str, found: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """The origin of each setting of the benchmark: DEFAULT, a file, or the place where the case `name` overrides it.

    Args:
        found: for each setting DEFAULT, OVERRIDE or the path of a file (LoadedConfig.origins).
    """
    words = {}
    for key, origin in found.items():
        if origin == OVERRIDE:
            words[key] = settings.origin(f"{name}.overrides.{key}")
        else:
            words[key] = origin if origin == DEFAULT else repository_path(Path(origin))
    return words


def case_origins(
    name: str, case: CaseSettings, of_config: Mapping[str, str], settings: Settings, *, backend: str
) -> dict[str, str]:
    """The origins of backend, sizes, rounds, limits and data of the case `name`.

    Args:
        of_config: the result of `config_origins` for its config.
        backend: the origin of the backend if the config sets none.
    """
    words = {"backend": backend or of_config["backend"]}
    for key, default in OF_THE_CASE.items():
        if key in case.model_fields_set and getattr(case, key) is not None:
            words[key] = settings.origin(f"{name}.{key}")
        elif default is not None and default in settings.test.model_fields_set:
            words[key] = settings.origin(default)
        else:
            words[key] = DEFAULT
    if case.hosts is not None and "nnodes" not in case.model_fields_set:
        words["nnodes"] = settings.origin(f"{name}.hosts")
    if settings.changes.repeat is not None:
        words["repeat"] = REPEAT
    return words
