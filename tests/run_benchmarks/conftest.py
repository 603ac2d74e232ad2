"""Config files written into a test's own folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from run_benchmarks.settings.settings import Settings, load_settings

CLUSTER = 'HOSTS = ["localhost"]\n'
TEST = """\
VENDOR = "cpu"
RUNTIME = "process"; HISTORY = "off"
CASES = ["ONE"]
ONE = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2}
"""
Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """load(test text, cluster text): the settings of two files of these texts."""

    def load(test: str = TEST, cluster: str = CLUSTER) -> Settings:
        cluster_file, test_file = tmp_path / "cluster_conf.py", tmp_path / "test_conf.py"
        cluster_file.write_text(cluster, encoding="utf-8")
        test_file.write_text(test, encoding="utf-8")
        return load_settings(cluster_file, test_file)

    return load
