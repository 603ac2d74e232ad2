"""What goes into an image: templates, wheels, context and the tag over all of it. No Docker here."""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vendors
from container.image import LABEL_HASH, REQUIREMENTS, ImageSpec, ImageSpecError, PackageSource, image_spec
from container.wheels import needed_wheels
from run_benchmarks.plan.cache import hashes_of
from vendors import ImageParameters


def wheel(folder: Path, file_name: str, requires: tuple[str, ...] = (), content: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    name, version = file_name.split("-")[:2]
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
    path = folder / file_name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(["Metadata-Version: 2.1", *lines]) + "\n\n")
        archive.writestr(f"{name}/__init__.py", content)
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A wheelhouse with torch and what it needs, a package of a case, and one that nobody needs."""
    folder = tmp_path / "wheels"
    wheel(
        folder, "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", ("Typing.Extensions>=4; python_version > '3'", "sympy")
    )
    wheel(folder, "typing_extensions-4.16.0-py3-none-any.whl")
    wheel(folder, "sympy-1.14.0-py3-none-any.whl", ("mpmath<1.4,>=1.1.0", "pytest; extra == 'dev'"))
    wheel(folder, "mpmath-1.3.0-py3-none-any.whl", ("sympy",))
    wheel(folder, "einops-3.16.0-1-cp311-cp311-linux_x86_64.whl", ("typing-extensions",))
    wheel(folder, "unwanted-1.0-py3-none-any.whl")
    (folder / "notes.txt").write_text("not a wheel")
    return folder


def described(
    vendor: str,
    framework: str = "pytorch",
    *,
    pip_source: str | None = None,
    pip_trusted_host: str | None = None,
    wheelhouse: Path | None = None,
    **changes: Any,
) -> ImageSpec:
    packages = PackageSource(index=pip_source, trusted_host=pip_trusted_host, wheelhouse=wheelhouse)
    return image_spec(vendors.load(vendor), framework, packages=packages, hashes_of=hashes_of, **changes)


cpu, nvidia, ascend = (partial(described, vendor) for vendor in ("cpu", "nvidia", "ascend"))


def commands(spec: ImageSpec) -> list[list[str]]:
    """The argv of each RUN line."""
    return [json.loads(line.removeprefix("RUN ")) for line in spec.dockerfile.splitlines() if line.startswith("RUN ")]


def context(spec: ImageSpec) -> bytes:
    stream = io.BytesIO()
    spec.write_context(stream)
    return stream.getvalue()


def members(spec: ImageSpec) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(context(spec))) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def test_a_tag_says_vendor_framework_and_hash() -> None:
    spec = cpu()
    assert spec.tag == f"clusterdyno/cpu-pytorch:{spec.content_hash[:12]}"
    assert spec.labels == {
        LABEL_HASH: spec.content_hash,
        "org.clusterdyno.vendor": "cpu",
        "org.clusterdyno.framework": "pytorch",
    }
    assert spec.tag == cpu().tag


def test_whatever_goes_in_changes_the_tag(tmp_path: Path, wheels: Path) -> None:
    case = tmp_path / "requirements.txt"
    case.write_text("einops==3.16.0\n")
    specs = [
        cpu(),
        nvidia(),
        cpu(base_image="debian:bookworm"),
        cpu(pip_source="https://mirror.example/simple"),
        cpu(requirements=(case,)),
        cpu(wheelhouse=wheels),
        cpu(wheelhouse=wheels, requirements=(case,)),
        nvidia(options={"flash_attn": "2.8.3"}),
    ]
    case.write_text("einops==3.15.0\n")
    specs.append(cpu(requirements=(case,)))
    os.utime(wheel(wheels, "sympy-1.14.0-py3-none-any.whl", content="changed = 1"), ns=(1, 1))
    specs.append(cpu(wheelhouse=wheels))
    assert len({spec.tag for spec in specs}) == len(specs)


def test_a_wheel_nobody_needs_and_its_time_change_nothing(wheels: Path) -> None:
    before = cpu(wheelhouse=wheels).tag
    wheel(wheels, "unwanted-1.0-py3-none-any.whl", content="changed = 1")
    for path in wheels.iterdir():
        os.utime(path, ns=(5, 5))
    assert cpu(wheelhouse=wheels).tag == before


def test_context_is_the_same_bytes_and_has_what_the_dockerfile_copies(tmp_path: Path, wheels: Path) -> None:
    case = tmp_path / "requirements.txt"
    case.write_text("einops==3.16.0\n")
    spec = cpu(wheelhouse=wheels, requirements=(case,))
    assert context(spec) == context(cpu(wheelhouse=wheels, requirements=(case,)))
    found = members(spec)
    assert found["Dockerfile"].decode() == spec.dockerfile
    assert found["requirements/workload.txt"] == (REQUIREMENTS / "workload.txt").read_bytes()
    assert found["requirements/case/0.txt"] == b"einops==3.16.0\n"
    assert {name for name in found if name.startswith("wheelhouse/")} == {
        "wheelhouse/workload/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",
        "wheelhouse/workload/typing_extensions-4.16.0-py3-none-any.whl",
        "wheelhouse/workload/sympy-1.14.0-py3-none-any.whl",
        "wheelhouse/workload/mpmath-1.3.0-py3-none-any.whl",
        "wheelhouse/case/einops-3.16.0-1-cp311-cp311-linux_x86_64.whl",
    }
    copied = [
        line.split()[1:-1] for line in spec.dockerfile.splitlines() if line.startswith("COPY ") and "--from" not in line
    ]
    for source in (source for sources in copied for source in sources):
        assert any(name == source or name.startswith(f"{source}/") for name in found), source
    assert sum(map(len, found.values())) == spec.context_size


def test_a_file_that_changes_before_the_build_is_noticed(tmp_path: Path) -> None:
    case = tmp_path / "requirements.txt"
    case.write_text("einops==3.16.0\n")
    spec = cpu(requirements=(case,))
    for text in ("einops==3.16.1\n", "einops\n", ""):
        case.write_text(text)
        with pytest.raises(ImageSpecError, match="changed while the image was being made"):
            context(spec)


def test_packages_come_from_one_place_only(wheels: Path) -> None:
    (offline,) = commands(cpu(wheelhouse=wheels))
    assert "--find-links=/build/wheelhouse/workload" in offline
    assert not any("index" in word for word in offline)
    (mirror,) = commands(cpu(pip_source="https://mirror.example/simple"))
    assert "--index-url=https://mirror.example/simple" in mirror
    assert not any("extra" in word for word in mirror)
    (usual,) = commands(cpu())
    assert "--extra-index-url=https://download.pytorch.org/whl/cpu" in usual


def test_a_case_is_a_layer_after_the_workloads(tmp_path: Path, wheels: Path) -> None:
    case = tmp_path / "requirements.txt"
    case.write_text("einops==3.16.0\n")
    first, second = commands(cpu(wheelhouse=wheels, requirements=(case,)))
    assert first == commands(cpu(wheelhouse=wheels))[0], "a case's packages must not invalidate the layer of torch"
    assert "--requirements=/build/case/0.txt" in second
    assert "--find-links=/build/wheelhouse/case" in second
    case.write_text("sympy\n")  # its wheel is among the workload's: nothing more to copy
    spec = cpu(wheelhouse=wheels, requirements=(case,))
    assert "COPY wheelhouse/case" not in spec.dockerfile
    assert "--find-links=/build/wheelhouse/case" not in commands(spec)[1]


def test_wheels_stay_out_of_the_final_stage(wheels: Path) -> None:
    stages = cpu(wheelhouse=wheels).dockerfile.split("\nFROM ")
    assert len(stages) == 3, "what stands before the first FROM, and two stages"
    assert "wheelhouse" not in stages[-1]
    assert "COPY --from=packages /opt/clusterdyno /opt/clusterdyno" in stages[-1]


def test_nvidia_keeps_what_the_base_has_and_builds_on_request() -> None:
    spec = nvidia()
    assert "FROM nvcr.io/nvidia/pytorch:" in spec.dockerfile
    (only,) = commands(spec)
    assert "--missing=/build/workload.txt" in only
    built = commands(nvidia(options={"flash_attn": "2.8.3.post2", "apex": "25.09", "max_jobs": "4"}))
    assert built[0] == only
    assert built[2][:2] == ["env", "MAX_JOBS=4"]
    assert built[2][-2:] == ["--from-source", "flash-attn==2.8.3.post2"]
    assert built[3][-1] == "apex @ git+https://github.com/NVIDIA/apex@25.09"
    assert "APEX_CUDA_EXT=1" in built[3]


def test_ascend_has_a_pair_of_torch_and_its_plug_in_in_both_stages_unless_the_base_brings_them(wheels: Path) -> None:
    spec = ascend()
    pairs = [command for command in commands(spec) if "torch-npu==2.12.0" in command]
    assert len(pairs) == 2 and pairs[0] == pairs[1] and "torch==2.12.0" in pairs[0]
    assert commands(spec).index(pairs[0]) == 0, "before the workload's packages, which would bring another torch"
    assert not any("torch-npu" in part for command in commands(ascend(options={"torch": ""})) for part in command)
    with pytest.raises(ImageSpecError, match="name a BASE_IMAGE that has them"):
        ascend(wheelhouse=wheels)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"base_image": "Not A Reference"}, "base image 'Not A Reference' is no image reference"),
        ({"base_image": "debian\nRUN evil"}, "is no image reference"),
        ({"pip_source": "file:///srv/index"}, "reaches http:// and https:// only"),
        ({"pip_source": "https://host/a b"}, "reaches http:// and https:// only"),
        ({"wheelhouse": Path("/nonexistent/wheels")}, "wheelhouse /nonexistent/wheels: no such folder"),
        ({"requirements": (Path("/nonexistent/r.txt"),)}, "/nonexistent/r.txt"),
        ({"options": {"flash_atn": "1"}}, "unknown image option flash_atn; allowed: apex, flash_attn, max_jobs"),
    ],
)
def test_wrong_parameters_are_named(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ImageSpecError) as error:
        nvidia(**changes)
    assert problem in str(error.value)


def test_contradictions_are_refused(wheels: Path) -> None:
    with pytest.raises(ImageSpecError, match="are both set"):
        cpu(wheelhouse=wheels, pip_source="https://mirror.example/simple")
    with pytest.raises(ImageSpecError, match="put built wheels into it"):
        nvidia(wheelhouse=wheels, options={"apex": "master"})
    with pytest.raises(ImageSpecError, match="has no image for framework 'jax'; it has paddle, pytorch"):
        cpu("jax")


def test_a_wheelhouse_without_the_workloads_wheels(tmp_path: Path) -> None:
    wheel(tmp_path / "w", "unwanted-1.0-py3-none-any.whl")
    with pytest.raises(ImageSpecError, match=r"has no wheel that workload.txt asks for"):
        cpu(wheelhouse=tmp_path / "w")


def test_a_wheel_whose_metadata_cannot_be_read_is_named(tmp_path: Path) -> None:
    wheel(tmp_path / "w", "torch-2.13.0-py3-none-any.whl", ("(>=1)", "numpy"))
    with pytest.raises(ImageSpecError, match=r"torch-2.13.0-py3-none-any.whl: not a wheel: "):
        cpu(wheelhouse=tmp_path / "w")
    with zipfile.ZipFile(tmp_path / "w" / "torch-2.13.0-py3-none-any.whl", "w") as archive:
        archive.writestr("torch/__init__.py", "")
    with pytest.raises(ImageSpecError, match=r"torch-2.13.0-py3-none-any.whl: not a wheel: it has no METADATA"):
        cpu(wheelhouse=tmp_path / "w")


def test_a_requirement_that_old_wheels_have_and_pip_takes_is_one(tmp_path: Path) -> None:
    wheel(tmp_path, "omegaconf-2.0.6-py3-none-any.whl", ("PyYAML (>=5.1.*)", "numpy"))
    wheel(tmp_path, "pyyaml-6.0-py3-none-any.whl")
    found = needed_wheels(tmp_path, ["omegaconf"])
    assert [path.name for path in found] == ["omegaconf-2.0.6-py3-none-any.whl", "pyyaml-6.0-py3-none-any.whl"]


@pytest.mark.parametrize("name", ["torch.whl", "torch-2.13.0-cp311-cp311-linux_x86_64.whl"])
def test_a_file_that_is_no_wheel_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not a zip")
    with pytest.raises(ImageSpecError, match=rf"{name}: not "):
        cpu(wheelhouse=tmp_path)


def test_a_vendors_own_template_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "__path__", [str(Path(vendors.__file__).parent), str(tmp_path)])
    (tmp_path / "abacus").mkdir()
    (tmp_path / "abacus" / "adapter.py").touch()
    parameters = ImageParameters(
        template="mine.j2", base_image="abacus/base:1", python="/usr/bin/python3", options={"beads": "7"}
    )
    vendor = replace(vendors.load("cpu"), name="abacus", images={"pytorch": parameters})

    spec = partial(image_spec, vendor, "pytorch", hashes_of=hashes_of)
    with pytest.raises(ImageSpecError, match=r"vendor abacus: no template 'mine.j2' in .*abacus"):
        spec()
    template = tmp_path / "abacus" / "mine.j2"
    template.write_text("FROM {{ base_image }}\nENV BEADS={{ beads }}\n")
    assert spec().dockerfile == "FROM abacus/base:1\nENV BEADS=7\n"
    template.write_text("FROM {{ base_imag }}\n")
    with pytest.raises(ImageSpecError, match=r"template mine\.j2: 'base_imag' is undefined"):
        spec()


def test_needed_wheels_follow_requirements_through_cycles(wheels: Path) -> None:
    assert [path.name.split("-")[0] for path in needed_wheels(wheels, ["SymPy"])] == ["mpmath", "sympy"]
    assert needed_wheels(wheels, ["nobody-has-this"]) == []


def test_describing_an_image_needs_no_docker() -> None:
    code = "import sys, container.image; sys.exit('docker' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(vendors.__file__).parents[1])


def test_an_index_without_encryption_is_taken_only_where_the_user_names_its_host() -> None:
    with pytest.raises(ImageSpecError, match=r"not encrypted.* PIP_TRUSTED_HOST = 'mirror:81'"):
        cpu(pip_source="http://me:pw@mirror:81/simple")
    (command,) = commands(cpu(pip_source="http://me:pw@mirror:81/simple", pip_trusted_host="mirror:81"))
    assert command[-2:] == ["--index-url=http://me:pw@mirror:81/simple", "--trusted-host=mirror:81"]
    assert not any("trusted" in word for word in commands(cpu(pip_source="https://mirror/simple"))[0])
    with pytest.raises(ImageSpecError, match="expected 'mirror:81', that of the package index"):
        cpu(pip_source="http://mirror:81/simple", pip_trusted_host="other")
    with pytest.raises(ImageSpecError, match="nothing without PIP_SOURCE"):
        cpu(pip_trusted_host="mirror")


def test_a_base_may_be_given_by_its_digest() -> None:
    base = f"registry:5000/team/base@sha256:{'0' * 64}"
    assert f"FROM {base} AS packages" in cpu(base_image=base).dockerfile
    with pytest.raises(ImageSpecError, match="is no image reference"):
        cpu(base_image=base[:-1])


@pytest.mark.parametrize(("vendor", "package"), [("cpu", "paddlepaddle"), ("nvidia", "paddlepaddle-gpu")])
def test_an_image_of_paddle_has_paddle_and_no_torch(vendor: str, package: str) -> None:
    spec = described(vendor, "paddle")
    names = [line.partition("==")[0] for line in members(spec)["requirements/workload.txt"].decode().splitlines()]
    assert package in names and "torch" not in names
    assert "libgomp" in spec.dockerfile and "pytorch" not in spec.dockerfile
    assert spec.tag.startswith(f"clusterdyno/{vendor}-paddle:")
