"""The name of a host's processor, by /proc/cpuinfo as kernels on x86 and ARM write it."""

import platform
from pathlib import Path

import pytest

from vendors.processor import cpu_name

# Linux, arch/arm64/kernel/cpuinfo.c: of Neoverse N1 and of Kunpeng 920.
ARM = """\
processor\t: {n}
BogoMIPS\t: 200.00
Features\t: fp asimd evtstrm aes
CPU implementer\t: {implementer}
CPU architecture: 8
CPU variant\t: {variant}
CPU part\t: {part}
CPU revision\t: 1

"""
N1 = {"implementer": "0x41", "variant": "0x3", "part": "0xd0c"}
KUNPENG = {"implementer": "0x48", "variant": "0x1", "part": "0xd01"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8480C\n",
            "Intel(R) Xeon(R) 8480C",
        ),
        ("".join(ARM.format(n=n, **N1) for n in range(2)), "implementer 0x41, part 0xd0c, variant 0x3"),
        (ARM.format(n=0, **KUNPENG), "implementer 0x48, part 0xd01, variant 0x1"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("Model Name\t\t: Loongson-3A5000\n", "Loongson-3A5000"),
        ("model name\t:\n", platform.machine()),
        ("\x00:\n", platform.machine()),
    ],
)
def test_a_processor_is_named_by_its_maker_or_by_the_numbers_of_its_type(text: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    assert cpu_name(file) == name
    assert cpu_name(tmp_path / "none") == platform.machine()
