"""Finding and loading vendors, and the shipped ones."""

import csv
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vendors
from protocol.case_config import load_case_config
from protocol.config_file import config_files
from run_benchmarks.inspection.health import judged, parsed
from run_benchmarks.inspection.health_script import health_script
from tests.run_benchmarks.calling import call
from training.benchmarks.bert.pytorch import config as bert_config
from training.benchmarks.network.pytorch.config import Config
from vendors import BrokenVendor, UnknownVendor
from vendors.tools import devices_in, number_of

ROOT = Path(vendors.__file__).parent
SHIPPED = "amd, ascend, cambricon, cpu, dcu, gaudi, iluvatar, kunlunxin, metax, mthreads, nvidia, tsingmicro"


@pytest.fixture
def more_vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the package `vendors` also looks into; modules loaded from it are forgotten at the end."""
    monkeypatch.setattr(vendors, "__path__", [str(ROOT), str(tmp_path)])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("vendors.")]:
        if (tmp_path / name.split(".")[1]).is_dir():
            del sys.modules[name]


def adapter(root: Path, name: str, text: str) -> Path:
    path = root / name / "adapter.py"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_vendors_load() -> None:
    assert ", ".join(vendors.available()) == SHIPPED
    amd, cpu, nvidia = map(vendors.load, ("amd", "cpu", "nvidia"))
    assert [vendor.name for vendor in vendors.working()] == vendors.available()
    assert (cpu.backend, cpu.visible_devices_env, cpu.container_options, cpu.device_files) == ("gloo", "", "", ())
    assert (nvidia.backend, nvidia.visible_devices_env) == ("nccl", "CUDA_VISIBLE_DEVICES")
    assert (amd.backend, amd.visible_devices_env) == ("nccl", "HIP_VISIBLE_DEVICES")
    assert nvidia.images["pytorch"].base_image.startswith("nvcr.io/nvidia/pytorch:")
    for vendor in vendors.working():
        devices = re.findall(r"--device (\S+)", vendor.container_options)
        numbered = [each for each in devices if re.search(r"\d\*?$", each)]
        assert not numbered, f"{vendor.name}: hosts have fewer devices and more"
        assert {each for each in devices if "*" in each} <= {*vendor.device_files}, vendor.name


def test_a_vendor_is_called_seen_exactly_where_one_of_its_devices_was_measured() -> None:
    measured = set()
    for table in (ROOT.parent / "docs/data/measurements").glob("*.csv"):
        for line in csv.reader(table.read_text(encoding="utf-8").splitlines()):
            measured.add(line[-1].partition(",")[0])
    for vendor in vendors.working():
        devices = {sheet.name.split()[0] for sheet in vendor.datasheets}
        assert devices & measured == set(vendor.seen.split(", ")[:-1]), vendor.name


def test_a_vendor_that_was_never_seen_on_a_device_says_so_with_the_command_that_tells() -> None:
    listed = json.loads(call("list", "vendors", "--json").checked().stdout)["vendors"]
    page = (ROOT.parent / "docs/reference/measurements.md").read_text(encoding="utf-8")
    ran = re.search(r"No vendor but (.*) has run on a device", page)
    assert ran is not None
    for row in listed:
        vendor = vendors.load(row["vendor"])
        never = f"never; this tells: python -m monitors --vendor {vendor.name} --log_dir DIR --max_seconds 5"
        is_open = bool(vendor.monitor_name) and not vendor.seen
        assert (row["seen"] == never) == is_open == (f"`{vendor.name}`" not in ran[1]), row["seen"]
    assert "`python -m monitors --log_dir DIR --vendor NAME --max_seconds 5`" in page


def test_loading_a_vendor_needs_no_library_of_its_devices() -> None:

    code = "import sys, vendors; vendors.load('nvidia'); vendors.load('cpu'); sys.exit('pynvml' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


def test_unknown_vendor_names_what_there_is_and_the_nearest() -> None:
    with pytest.raises(UnknownVendor, match=rf"'nvdia': vendors/ has {SHIPPED}; did you mean 'nvidia'\?"):
        vendors.load("nvdia")
    with pytest.raises(UnknownVendor, match=rf"has {SHIPPED}$"):
        vendors.case_dir("zzz", "network", "pytorch")


@pytest.mark.parametrize("name", ["", ".", "..", "../vendors", "base"])
def test_names_that_are_no_folder_are_unknown(name: str) -> None:
    with pytest.raises(UnknownVendor):
        vendors.load(name)


def test_a_folder_is_a_vendor(more_vendors: Path) -> None:
    text = (ROOT / "cpu" / "adapter.py").read_text(encoding="utf-8").replace('name="cpu"', 'name="abacus"')
    adapter(more_vendors, "abacus", text)
    assert ", ".join(vendors.available()) == f"abacus, {SHIPPED}"
    assert vendors.load("abacus").backend == "gloo"
    assert vendors.case_dir("abacus", "network", "pytorch") == more_vendors / "abacus" / "network-pytorch"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import a_module_nobody_has", "does not import: ModuleNotFoundError"),
        ("VENDOR = (", "does not import: SyntaxError"),
        ("", "must export VENDOR, a vendors.base.Vendor; found NoneType"),
        ("VENDOR = 'mine'", "found str"),
        ("from vendors.cpu.adapter import VENDOR", "VENDOR.name is 'cpu', but its folder is called 'broken'"),
        ("from vendors import Vendor\nVENDOR = Vendor(name='broken')", "does not import: TypeError"),
    ],
)
def test_a_broken_adapter_is_named(more_vendors: Path, text: str, problem: str) -> None:
    path = adapter(more_vendors, "broken", text)
    with pytest.raises(BrokenVendor) as error:
        vendors.load("broken")
    assert str(path) in str(error.value)
    assert problem in str(error.value)


def test_case_dir_is_where_the_shipped_configs_are() -> None:
    names = config_files(vendors.case_dir("nvidia", "network", "pytorch") / "config")
    assert names.keys() >= {
        f"config_{gpu}x{size}" for gpu in ("A100", "H100", "H200") for size in ("1x1", "1x8", "2x8")
    }


SIZED = [
    file
    for folder in ROOT.glob("*/network-pytorch/config")
    for name, file in config_files(folder).items()
    if name[-4:-3] == "x" and name[-3].isdigit()
]


@pytest.mark.parametrize("path", SIZED, ids=lambda path: path.stem)
def test_shipped_network_configs_are_valid(path: Path) -> None:
    config = load_case_config(Config, path, {})
    assert config.check
    assert config.size_list[0] == 8
    gpu = not path.is_relative_to(ROOT / "cpu")
    assert config.size_list[-1] == (16 << 30 if gpu else 16 << 20)


@pytest.mark.torch
def test_the_page_on_adding_a_vendor_makes_a_vendor(more_vendors: Path) -> None:
    page = (ROOT.parent / "docs/how-to/adding-a-vendor.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    own = blocks[0].replace("    monitor_name=", "    health=HEALTH,\n    monitor_name=")
    adapter(more_vendors, "abacus", f"from vendors.abacus.health import HEALTH\n{own}")
    (more_vendors / "abacus/health.py").write_text(blocks[3])
    (more_vendors / "abacus/device.py").write_text(
        blocks[1].replace("torch_abacus", "torch").replace('"abacus"', '"cuda"')
    )
    vendor = vendors.load("abacus")
    assert (vendor.backend, vendor.device_type, vendor.device_files) == ("abacus", "abacus", ("/dev/abacus[0-9]*",))
    devices = importlib.import_module("vendors.abacus.device").open_devices()
    assert devices.against("flash_attn", None, (7, 5)) == "needs compute capability 8.0, found 7.5"
    assert devices.against("apex", None) == "there is no apex for devices of type cuda"
    by_tool = re.search(r"`(open_probe=[\w.]+)`", page)
    assert by_tool is not None
    table = more_vendors / "abacus/table.py"
    table.write_text(blocks[2] + blocks[0].replace("open_probe=_open_probe", by_tool[1]))
    with pytest.raises(vendors.ProbeUnavailable, match="abacus-smi"):
        importlib.import_module("vendors.abacus.table").VENDOR.open_probe()
    printed = "| 0 Abacus 3000 | 0000:01:00.0 | 7% |\n| 40C 12W / 30W | 5MiB / 64MiB | fine |\n"
    (device,) = devices_in(importlib.import_module("vendors.abacus.table").TOOL, printed)
    assert (device["name"], number_of(device, "power_w"), number_of(device, "memory_used_mib")) == (
        "Abacus 3000",
        12,
        5,
    )
    assert "abacus-smi --errors" in health_script()
    ((_, found),) = judged({"n1": parsed("abacus\t0\tmemory_errors\t2\nend\tok\n")})
    assert found[:2] == ("accelerator 0", "2 uncorrected memory errors since the driver was loaded")
    config = more_vendors / "abacus/bert-pytorch/config/config_A1x2x8.py"
    config.parent.mkdir(parents=True)
    config.with_name("config_A1x1x8.py").write_text("# As published.\n")
    config.write_text(blocks[4])
    resolved = load_case_config(bert_config.Config, config, {})
    assert (resolved.train_batch_size, resolved.gradient_accumulation_steps) == (48, 2)
