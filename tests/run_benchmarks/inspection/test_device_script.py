"""State of accelerators that are no NVIDIA GPUs: the health script on made-up trees of amdgpu, on recorded outputs of
the vendors' tools, on garbage, and without them.
"""

import shlex
from pathlib import Path

import pytest

from run_benchmarks.inspection.health import parsed
from tests.run_benchmarks.inspection.made_hosts import host_files, looked, said, tree

DATA = Path(__file__).parents[2] / "data"
RAS = "sys/bus/pci/devices/0000:05:00.0/ras"


def amd_files(
    *buses: str, ue: int = 0, links: int = 0, pages: str = "", level: str = "auto", cap: int = 750
) -> dict[str, str]:
    """What amdgpu shows of its devices, as in the kernel's documents; the errors are of the first."""
    files = host_files()
    for place, bus in enumerate(buses):
        device = f"sys/bus/pci/devices/0000:{bus}:00.0"
        errors = {"umc": ue, "gfx": 0, "xgmi_wafl": links} if place == 0 else {"umc": 0, "xgmi_wafl": 0}
        files |= {f"{device}/ras/{block}_err_count": f"ue: {count}\nce: 3\n" for block, count in errors.items()}
        files |= {
            f"{device}/ras/gpu_vram_bad_pages": pages if place == 0 else "",
            f"{device}/power_dpm_force_performance_level": f"{level if place == 0 else 'auto'}\n",
            f"{device}/hwmon/hwmon3/power1_cap": f"{cap if place == 0 else 750}000000\n",
            f"{device}/hwmon/hwmon3/power1_cap_default": "750000000\n",
            f"{device}/vbios_version": "113-M3000100-102\n",
            f"{device}/xgmi_hive_info/xgmi_hive_id": "42\n",
        }
    return files


def amd_smi(file: str = "amd-smi-throttle.txt", links: str = "UUUUUUUX UUUUUUUX") -> dict[str, str]:
    """links: of each device the states of its links, as `amd-smi xgmi --link-status` lists them."""
    rows = zip(("05", "26"), links.split(), strict=False)
    states = "".join(f"GPU{n}   0000:{bus}:00.0  {'  '.join(own)}\\n" for n, (bus, own) in enumerate(rows))
    shown = f"'xgmi --link-status') printf 'XGMI LINK STATUS:\\n       bdf           link_status\\n{states}' ;;"
    listed = "GPU: 0\\n    BDF: 0000:05:00.0\\n\\nGPU: 1\\n    BDF: 0000:26:00.0\\n"
    throttled = f"'metric --throttle') cat {DATA / 'vendors' / file} ;;"
    return {"amd-smi": f"case $* in {shown} {throttled} list) printf '{listed}' ;; *) exit 1 ;; esac"}


def of_devices(found: dict[tuple[str, str, str], str]) -> dict[tuple[str, str], str]:
    kinds = (
        "accelerator",
        "XGMI",
        "memory errors",
        "bad pages",
        "throttling",
        "GPUs in",
        "links of",
        "state of the ",
        "version of",
    )
    return {(key[1], key[2]): how for key, how in found.items() if key[1].startswith(kinds)}


def test_sound_amd_devices_have_no_finding(tmp_path: Path) -> None:
    files = amd_files("05", "26")
    assert of_devices(said({"n0": looked(tree(tmp_path, files), programs=amd_smi())})) == {}


def test_errors_pages_clocks_power_and_heat_of_amd_devices_are_told(tmp_path: Path) -> None:
    pages = "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n0x00000003 : 0x00001000 : F\n"
    files = amd_files("05", "26", ue=2, links=1, pages=pages, level="manual", cap=500)
    programs = amd_smi("amd-smi-throttle-hot.txt")
    assert of_devices(said({"n0": looked(tree(tmp_path, files), programs=programs)})) == {
        ("accelerator 0000:05:00.0", "2 uncorrected memory errors since the driver was loaded"): "warning",
        ("accelerator 0000:05:00.0", "1 uncorrected errors of its links since the driver was loaded"): "warning",
        ("accelerator 0000:05:00.0", "1 bad pages of its memory could not be retired"): "failure",
        ("accelerator 0000:05:00.0", "its clocks are set to manual"): "warning",
        ("accelerator 0000:05:00.0", "its power is limited to 500 W"): "warning",
        ("accelerator 0000:26:00.0", "its clocks are held down: PPT"): "warning",
        ("accelerator 0000:26:00.0", "its clocks are held down: HBM_THERMAL"): "failure",
    }
    waits = tree(tmp_path / "waits", amd_files("05", pages=pages.replace(" F", " R")))
    told = of_devices(said({"n0": looked(waits, programs=amd_smi())}))
    assert told == {("accelerator 0000:05:00.0", "1 bad pages of its memory wait to be retired"): "warning"}


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ("UUUUUUDX UUUUUUUX", {("accelerator 0000:05:00.0", "1 of 7 XGMI links are down"): "failure"}),
        ("DDDDDDDX UUUUUUUX", {}),
        ("NNNNNNNX UUUUUUUX", {("accelerator 0000:05:00.0", "no link of it is shown"): "not seen"}),
        ("UUUUUUUX", {("XGMI links of the GPUs", "amd-smi xgmi shows 1 of 2 GPUs in a hive"): "blind"}),
        ("DDDDDDDX DDDDDDDX", "blind"),
        ("N N", "blind"),
    ],
)
def test_an_xgmi_link_that_is_down_is_told_and_where_none_is_shown_up_nothing_passes(
    links: str, expected: dict[tuple[str, str], str] | str, tmp_path: Path
) -> None:
    """One that is down is so at both its ends; of two devices neither has most of the host's."""
    found = of_devices(said({"n0": looked(tree(tmp_path, amd_files("05", "26")), programs=amd_smi(links=links))}))
    silent = (
        "XGMI links of the GPUs",
        "amd-smi xgmi --link-status (ROCm 6.4 or newer) does not tell of one that is up",
    )
    assert found == ({silent: expected} if isinstance(expected, str) else expected)


def test_a_device_out_of_the_hive_is_told_beside_other_hosts(tmp_path: Path) -> None:
    healths = {f"n{n}": looked(tree(tmp_path / f"{n}", amd_files("05", "26")), programs=amd_smi()) for n in range(3)}
    lost = {
        name: text
        for name, text in amd_files("05", "26").items()
        if not name.endswith("05:00.0/xgmi_hive_info/xgmi_hive_id")
    }
    healths["n3"] = looked(tree(tmp_path / "3", lost), programs=amd_smi())
    assert of_devices(said(healths)) == {("GPUs in a hive of XGMI", "1"): "warning"}


@pytest.mark.parametrize(
    "says", ["exit 1", "true", "echo 'GPU: 0'; echo '  THROTTLE: N/A'", "head -c 999 /dev/urandom"]
)
def test_what_amds_driver_and_tool_do_not_tell_is_not_passed(says: str, tmp_path: Path) -> None:
    files = {name: text for name, text in amd_files("05").items() if not name.startswith(RAS)}
    assert of_devices(said({"n0": looked(tree(tmp_path, files), programs={"amd-smi": says})})) == {
        ("memory errors of the GPUs", "amdgpu shows no ras/*_err_count"): "not seen",
        ("bad pages of the GPUs", "amdgpu shows no ras/gpu_vram_bad_pages"): "not seen",
        ("throttling of the GPUs", "amd-smi metric does not tell"): "not seen",
        (
            "XGMI links of the GPUs",
            "amd-smi xgmi --link-status (ROCm 6.4 or newer) does not tell of one that is up",
        ): "not seen",
        ("state of the GPUs", "neither amdgpu nor amd-smi tells of errors"): "blind",
    }
    files = {name: text for name, text in amd_files("05", "26").items() if not name.startswith(RAS)}
    found = of_devices(said({"n0": looked(tree(tmp_path / "two", files), programs={"amd-smi": says})}))
    assert {key[0]: how for key, how in found.items()} == {
        "memory errors of the GPUs": "blind",
        "bad pages of the GPUs": "blind",
        "XGMI links of the GPUs": "blind",
        "throttling of the GPUs": "not seen",
    }, "one of two tells: the other is asked in vain, and two of a hive have links"


def test_amd_smi_of_another_version_has_another_option(tmp_path: Path) -> None:
    newer = f"[ \"$*\" = 'metric --violation' ] && cat {DATA / 'vendors/amd-smi-throttle-hot.txt'}"
    found = of_devices(said({"n0": looked(tree(tmp_path, amd_files("05")), programs={"amd-smi": newer})}))
    assert ("accelerator 1", "its clocks are held down: HBM_THERMAL") in found


def npu_tools(table: str, *, errors: int = 0, links: str = "UP UP UP") -> dict[str, str]:
    """npu-smi and hccn_tool as they print; `links` of the devices 0, 1, ..., after which there is none."""
    ecc = (
        (DATA / "vendors/npu-smi-ecc.txt")
        .read_text()
        .replace("HBM Double Bit Error Count               : 0", f"HBM Double Bit Error Count               : {errors}")
    )
    alarm = "Health Status : Alarm\n Error Code : 80E01801\n Error Information : node type=HBM, temperature is high"
    states = " ".join(f"{place}) echo 'link status: {state}' ;;" for place, state in enumerate(links.split()))
    shown = f"info) cat {DATA / 'vendors' / table} ;;"
    return {
        "npu-smi": f"case $* in {shown} *health*) printf '%s\\n' {shlex.quote(alarm)} ;;"
        f" *ecc*) printf '%s\\n' {shlex.quote(ecc)} ;; *) exit 1 ;; esac",
        "hccn_tool": f"case $2 in {states} *) exit 1 ;; esac",
    }


@pytest.mark.parametrize("table", ["npu-smi-910A.txt", "npu-smi-A3.txt"])
def test_sound_ascend_devices_have_no_finding(table: str, tmp_path: Path) -> None:
    health = looked(tree(tmp_path, host_files()), programs=npu_tools(table))
    assert of_devices(said({"n0": health})) == {}
    assert next(health.of("ascend", 3))[1:] == ["memory_errors", "0"]
    assert [line for line in health.lines["version"] if line.startswith("npu-smi")] in (
        ["npu-smi 22.0.3"],
        ["npu-smi 25.2.0"],
    )


def test_alarms_errors_and_links_of_ascend_devices_are_told(tmp_path: Path) -> None:
    programs = npu_tools("npu-smi.txt", errors=4, links="UP DOWN")
    found = of_devices(said({"n0": looked(tree(tmp_path, host_files()), programs=programs)}))
    errors = "4 uncorrected memory errors since the driver was loaded"
    assert found == {
        ("accelerator 1", "its health is Alarm: 80E01801; node type=HBM, temperature is high"): "failure",
        ("accelerator 0", errors): "warning",
        ("accelerator 1", errors): "warning",
        ("accelerator 1", "its link is DOWN"): "warning",
    }


def test_a_link_that_is_down_beside_others_that_are_up_is_a_failure() -> None:
    lines = "".join(f"ascend\t{n}\tlink\t{state}\n" for n, state in enumerate(("UP", "UP", "DOWN")))
    assert of_devices(said({"n0": parsed(f"{lines}end\tok\n")})) == {("accelerator 2", "its link is DOWN"): "failure"}


def test_without_answers_of_ascends_tools_nothing_is_passed(tmp_path: Path) -> None:
    root = tree(tmp_path, host_files() | {"dev/davinci_manager": ""})
    found = of_devices(said({"n0": looked(root, alone=True)}))
    assert found[("state of the NPUs", "npu-smi is not installed, or does not answer")] == "blind"
    table = (DATA / "vendors/npu-smi.txt").read_text()
    mute = {"npu-smi": f"[ \"$*\" = info ] && printf '%s\\n' {shlex.quote(table)}", "hccn_tool": "exit 1"}
    health = looked(tree(tmp_path / "1", host_files()), programs=mute)
    assert len([line for line in health.lines["blind"] if line.startswith("memory errors of the NPUs")]) == 1
    assert of_devices(said({"n1": health})) == {
        ("accelerator 1", "its health is Alarm"): "failure",
        ("memory errors of the NPUs", "npu-smi info -t ecc does not tell"): "blind",
        ("links of the NPUs", "hccn_tool is not installed, or does not answer"): "blind",
    }
    bare = {"npu-smi": f"[ \"$*\" = info ] && printf '%s\\n' {shlex.quote(table.splitlines()[0])}"}
    health = looked(tree(tmp_path / "2", host_files()), programs=bare)
    assert of_devices(said({"n2": health})) == {("state of the NPUs", "npu-smi info shows none"): "blind"}
