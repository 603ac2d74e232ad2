"""Installs packages into a virtual environment over the base image, run by the base's own Python inside an image build.

The environment sees the packages of the base image (`--system-site-packages`); only missing ones are installed. A base
that was built around its own torch (NGC's) keeps it: its version is a constraint, as is /etc/pip/constraint.txt.

Standard library only, Python 3.8 or newer: it runs before anything is installed.
"""

import argparse
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, Iterable, List  # noqa: UP035 - Python 3.8

SITE_CONSTRAINTS = Path("/etc/pip/constraint.txt")

# Built together with the base's torch and CUDA: a different build of one of them breaks the others.
PROTECTED = re.compile(
    r"^(torch|torchvision|torchaudio|torchao|triton|pytorch-triton|flash-attn.*|apex|transformer-engine.*|nvidia-nccl.*)$"
)

# A shipped case needs one, not the version that it pins for bases without one.
KEPT = ("torchao",)


def main() -> int:
    """Make the environment at --venv (first call), then install --missing and --requirements into it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--missing", type=Path, action="append", default=[], help="leave out what the base has")
    parser.add_argument(
        "--requirements", type=Path, action="append", default=[], help=f"install as they are, but for {', '.join(KEPT)}"
    )
    parser.add_argument("--find-links", type=Path, action="append", default=[], help="folders of wheels; no index then")
    parser.add_argument("packages", nargs="*", help="install; an error where the base has it")
    parser.add_argument("--from-source", action="store_true", help="build the packages against the torch that is there")
    parser.add_argument("--index-url")
    parser.add_argument("--extra-index-url")
    parser.add_argument("--trusted-host", help="host[:port] of an index that needs no encryption")
    options = parser.parse_args()

    python = options.venv / "bin" / "python"
    base = base_distributions()
    if not python.exists():
        make_environment(options.venv)
    lines = missing([line for path in options.missing for line in requirement_lines(path)], base)
    refuse_present(options.packages, base)
    lines += options.packages
    kept = {name: base[name] for name in KEPT if name in base}
    lines += missing([line for path in options.requirements for line in requirement_lines(path)], kept)
    if not lines:
        print("nothing to install: the base image has it all")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        wanted, constraints = Path(folder) / "requirements.txt", Path(folder) / "constraints.txt"
        wanted.write_text("\n".join(lines) + "\n")
        constraints.write_text("".join(f"{name}=={base[name]}\n" for name in sorted(base) if PROTECTED.match(name)))
        command = [str(python), "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        command += ["--root-user-action=ignore", "--progress-bar=off", "-r", str(wanted), "-c", str(constraints)]
        if SITE_CONSTRAINTS.is_file():
            command += ["-c", str(SITE_CONSTRAINTS)]
        if options.from_source:
            command += ["--no-deps", "--no-build-isolation"]
        return subprocess.run(command + sources(options), check=False).returncode


def make_environment(path: Path) -> None:
    """A virtual environment over the base's packages, with a pip of its own or the base's."""
    command = [sys.executable, "-m", "venv", "--system-site-packages"]
    if importlib.util.find_spec("ensurepip") is None:
        if importlib.util.find_spec("pip") is None:
            sys.exit("the base image's python3 has neither ensurepip (Debian: python3-venv) nor pip")
        command.append("--without-pip")
    subprocess.run([*command, str(path)], check=True)


def base_distributions() -> Dict[str, str]:  # noqa: UP006 - Python 3.8
    """Version by normalized name of the distributions that the base's own Python sees."""
    found: Dict[str, str] = {}  # noqa: UP006
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(normalised(name), distribution.version)
    return found


def missing(requirements: Iterable[str], base: Dict[str, str]) -> List[str]:  # noqa: UP006
    """The requirements whose distribution the base lacks; prints which of the base's it keeps."""
    lines = []
    for line in requirements:
        name = name_of(line)
        if name in base:
            print(f"{name}: keeping the base image's {base[name]} (asked for: {line})")
        else:
            lines.append(line)
    return lines


def refuse_present(requirements: Iterable[str], base: Dict[str, str]) -> None:  # noqa: UP006
    """End the build if the base already has a package that is to be built for it."""
    for line in requirements:
        if name_of(line) in base and PROTECTED.match(name_of(line)):
            version = base[name_of(line)]
            sys.exit(
                f"the base image has {name_of(line)} {version} already: leave the option for it out (asked for: {line})"
            )


def name_of(requirement: str) -> str:
    """The normalized name at the beginning of a requirement."""
    return normalised(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def requirement_lines(path: Path) -> List[str]:  # noqa: UP006
    """Requirements of a file without comments and empty lines."""
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def sources(options: argparse.Namespace) -> List[str]:  # noqa: UP006
    """pip's options for its sources: the folders of wheels alone, or the indexes."""
    if options.find_links:
        return ["--no-index", *(f"--find-links={folder}" for folder in options.find_links)]
    arguments = []
    for flag, url in (("--index-url", options.index_url), ("--extra-index-url", options.extra_index_url)):
        if url:
            arguments.append(f"{flag}={url}")
    if options.trusted_host:
        arguments.append(f"--trusted-host={options.trusted_host}")
    return arguments


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
