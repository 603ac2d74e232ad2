"""Defines the contents of an image before it is built: Dockerfile, files, and the tag that is their hash.

Nothing here talks to Docker. The same inputs give the same tag on every machine.
"""

import contextlib
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn
from urllib.parse import urlsplit

from container.reference import is_reference
from container.wheels import WheelhouseError, needed_wheels
from vendors import CaseFileError, ImageParameters, Vendor, vendor_dir
from vendors.case_files import requirement_names

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "templates"
INSTALLER = HERE / "context" / "install_packages.py"
REQUIREMENTS = HERE.parent / "requirements"

LABEL_HASH = "org.clusterdyno.content-hash"
LABEL_BASE = "org.clusterdyno.base-image-id"
LABEL_VENDOR = "org.clusterdyno.vendor"
LABEL_FRAMEWORK = "org.clusterdyno.framework"


class ImageSpecError(ValueError):
    """An image cannot be described: a parameter is wrong, or parameters contradict each other."""


@dataclass(frozen=True, slots=True)
class ImageIdentity:
    """The identity of an image that all engines share: its id; for engines that compute ids differently its layers,
    labels and `started_with` (variables, user, folder and command, which are in no layer).
    """

    id: str
    layers: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    size: int
    started_with: str = ""

    def same(self, other: "ImageIdentity") -> bool:
        """Whether both are the same image."""
        ours = (self.layers, self.labels, self.started_with)
        theirs = (other.layers, other.labels, other.started_with)
        return self.id == other.id or (self.layers != () and ours == theirs)

    def label(self, name: str) -> str | None:
        """The value of one of its labels."""
        return dict(self.labels).get(name)


@dataclass(frozen=True, slots=True)
class ContextFile:
    """One file of the build context: its name there, its source, size in bytes, sha256 in hex."""

    name: str
    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSpec:
    """An image that can be built. Equal content gives an equal tag."""

    vendor: str
    framework: str
    base_image: str
    python: str
    dockerfile: str
    files: tuple[ContextFile, ...]

    @property
    def content_hash(self) -> str:
        """sha256, in hex, over all known contents: Dockerfile, name and content of each file.

        The Dockerfile holds the name of the base; LABEL_BASE records the base image of the build.
        """
        content = {"dockerfile": self.dockerfile, "files": [[file.name, file.sha256] for file in self.files]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def tag(self) -> str:
        """clusterdyno/<vendor>-<framework>:<first 12 digits of the content hash>"""
        return f"clusterdyno/{self.vendor}-{self.framework}:{self.content_hash[:12]}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the image. They are not in the Dockerfile: its hash cannot be part of what is hashed."""
        return {LABEL_HASH: self.content_hash, LABEL_VENDOR: self.vendor, LABEL_FRAMEWORK: self.framework}

    @property
    def context_size(self) -> int:
        """Size of the context's files in bytes."""
        return len(self.dockerfile.encode()) + sum(file.size for file in self.files)

    def write_context(self, fileobj: IO[bytes]) -> None:
        """Write the build context as a tar, byte for byte the same for the same spec.

        Raises:
            ImageSpecError: a file changed since it was hashed.
        """
        with tarfile.open(fileobj=fileobj, mode="w", format=tarfile.PAX_FORMAT) as tar:
            text = self.dockerfile.encode()
            tar.addfile(_member("Dockerfile", len(text)), io.BytesIO(text))
            for file in self.files:
                with file.path.open("rb") as stream:
                    reader = _HashingReader(stream)
                    with contextlib.suppress(OSError):  # tarfile's error for a file shorter than announced
                        tar.addfile(_member(file.name, file.size), reader)
                if reader.hexdigest() != file.sha256:
                    raise ImageSpecError(f"{file.path} changed while the image was being made: run it again")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSource:
    """The source of an image's packages: a package `index` (http, https; None: pip's own), or a folder of wheels, for
    sites without one. `trusted_host`: host[:port] of an index accepted without encryption or certificate.
    """

    index: str | None = None
    trusted_host: str | None = None
    wheelhouse: Path | None = None


def image_spec(
    vendor: Vendor,
    framework: str,
    *,
    base_image: str | None = None,
    packages: PackageSource = PackageSource(),
    requirements: tuple[Path, ...] = (),
    options: Mapping[str, str] | None = None,
    hashes_of: Callable[[Iterable[Path]], Mapping[Path, str]],
) -> ImageSpec:
    """Describe the image of a vendor and framework.

    Args:
        base_image: replaces the vendor's own.
        packages: where they come from.
        requirements: pip files of the case, from vendors.case_requirements.
        options: replace the vendor's own, by name.
        hashes_of: gives the sha256 of files, in hex.

    Raises:
        ImageSpecError: a base, a file or an option cannot be used.
    """
    parameters = _parameters(vendor, framework)
    base = base_image or parameters.base_image
    _check(base, parameters, options or {})
    _check_source(packages)
    try:
        workload = REQUIREMENTS / parameters.requirements
        files = {"install_packages.py": INSTALLER, "requirements/workload.txt": workload}
        case = {f"requirements/case/{index}.txt": path for index, path in enumerate(requirements)}
        wheels = _wheels(packages.wheelhouse, workload, requirements)
        context = files | case | wheels
        hashes = hashes_of(context.values())
    except (CaseFileError, WheelhouseError, OSError) as error:
        raise ImageSpecError(str(error)) from error
    text = _render(
        vendor,
        parameters,
        {
            **parameters.options,
            **(options or {}),
            "base_image": base,
            "pip_source": packages.index,
            "pip_trusted_host": packages.trusted_host,
            "wheels": bool(wheels),
            "case_wheels": any(name.startswith("wheelhouse/case/") for name in wheels),
            "requirements": [f"--requirements=/build/{name.removeprefix('requirements/')}" for name in case],
        },
    )
    return ImageSpec(
        vendor=vendor.name,
        framework=framework,
        base_image=base,
        python=parameters.python,
        dockerfile=text,
        files=tuple(
            ContextFile(name, path, path.stat().st_size, hashes[path]) for name, path in sorted(context.items())
        ),
    )


def _parameters(vendor: Vendor, framework: str) -> ImageParameters:
    if framework not in vendor.images:
        known = ", ".join(sorted(vendor.images)) or "none"
        raise ImageSpecError(f"vendor {vendor.name} has no image for framework {framework!r}; it has {known}")
    return vendor.images[framework]


def _check(base: str, parameters: ImageParameters, options: Mapping[str, str]) -> None:
    if not is_reference(base):
        raise ImageSpecError(f"base image {base!r} is no image reference; expected e.g. {parameters.base_image}")
    unknown = sorted(options.keys() - parameters.options.keys())
    if unknown:
        known = ", ".join(sorted(parameters.options)) or "none"
        raise ImageSpecError(f"unknown image option {', '.join(unknown)}; allowed: {known}")


def _check_source(packages: PackageSource) -> None:
    """Check the source; an index without encryption could bring replaced packages: the user has to name it."""
    pip_source, pip_trusted_host, wheelhouse = packages.index, packages.trusted_host, packages.wheelhouse
    if pip_source is not None and wheelhouse is not None:
        raise ImageSpecError(
            f"package index {pip_source} and wheelhouse {wheelhouse} are both set: a wheelhouse is for sites without an"
            " index and is used alone; leave one out"
        )
    if pip_source is not None and not re.match(r"^https?://[^\s]+$", pip_source):
        raise ImageSpecError(
            f"package index {pip_source!r}: an image build reaches http:// and https:// only; "
            "a folder of wheels is a wheelhouse"
        )
    host = urlsplit(pip_source or "").netloc.rpartition("@")[2]
    if pip_trusted_host is not None and pip_trusted_host != host:
        expected = f"{host!r}, that of the package index" if host else "nothing without PIP_SOURCE"
        raise ImageSpecError(f"PIP_TRUSTED_HOST {pip_trusted_host!r}: expected {expected}")
    if pip_source is not None and pip_source.startswith("http:") and pip_trusted_host is None:
        raise ImageSpecError(
            f"package index {pip_source}: not encrypted, so that anybody on the way may change the packages: give an "
            f"https:// index, or PIP_TRUSTED_HOST = {host!r} to take it all the same"
        )


def _wheels(wheelhouse: Path | None, workload: Path, requirements: Sequence[Path]) -> dict[str, Path]:
    """Context names of the wheels: those of the workload separate from those of the case, which form two layers."""
    if wheelhouse is None:
        return {}
    common = needed_wheels(wheelhouse, [name for _, name in requirement_names(workload)])
    if not common:
        raise WheelhouseError(f"wheelhouse {wheelhouse} has no wheel that {workload.name} asks for")
    more = needed_wheels(wheelhouse, [name for path in requirements for _, name in requirement_names(path)])
    case = [path for path in more if path not in common]
    groups = {"workload": common, "case": case}
    return {f"wheelhouse/{name}/{path.name}": path for name, paths in groups.items() for path in paths}


def _render(vendor: Vendor, parameters: ImageParameters, variables: Mapping[str, object]) -> str:
    import jinja2  # a plan without containers needs none

    folders = [vendor_dir(vendor.name), TEMPLATES]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["argv"] = lambda words: json.dumps(list(words), ensure_ascii=False)
    environment.globals.update(sources=_sources(variables), refuse=_refuse)
    python = PurePosixPath(parameters.python)
    try:
        text = environment.get_template(parameters.template).render(
            variables, python=str(python), venv=str(python.parent.parent)
        )
    except jinja2.TemplateNotFound as error:
        places = ", ".join(str(folder) for folder in folders)
        raise ImageSpecError(f"vendor {vendor.name}: no template {error.name!r} in {places}") from error
    except jinja2.TemplateError as error:
        raise ImageSpecError(f"vendor {vendor.name}: template {parameters.template}: {error}") from error
    return re.sub(r"\n{3,}", "\n\n", text).lstrip("\n")


def _refuse(message: str) -> NoReturn:
    raise ImageSpecError(message)


def _sources(variables: Mapping[str, object]) -> Callable[..., list[str]]:
    """The template's function sources("workload", ...): the places where install_packages.py looks for packages."""

    def sources(*groups: str) -> list[str]:
        if variables["wheels"]:
            there = [group for group in groups if group == "workload" or variables["case_wheels"]]
            return [f"--find-links=/build/wheelhouse/{group}" for group in there]
        if variables["pip_source"]:
            trusted = variables["pip_trusted_host"]
            flags = [f"--trusted-host={trusted}"] if trusted else []
            return [f"--index-url={variables['pip_source']}", *flags]
        extra = variables.get("extra_index_url")
        return [f"--extra-index-url={extra}"] if extra else []

    return sources


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A tar entry without traces of this machine: no time, no owner, fixed mode."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member


class _HashingReader:
    """Passes on the bytes of a stream and computes their sha256."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._hash.update(data)
        return data

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
