"""Packs a case of a run into an archive for a vendor: its logs and records, secrets masked once more."""

import gzip
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common.whole_files import others_kept, whole_file
from protocol.masking import secret_values
from run_benchmarks.plan.recorded import CASES_FOLDER
from run_benchmarks.results.loading import RUN_FILE, LoadedRun
from run_benchmarks.results.records import CaseRecord, record_text
from run_benchmarks.rounds.masked_files import mask_files

README = """{run}, case {case}: {verdict}. {reason}

{run_file}  the run: versions, hosts, code, and of the cases this one alone
{folder}/  each attempt at a round: round.json and the logs of each host and rank
{cases}/  the settings that the ranks read
The formats: docs/reference/file-formats.md of ClusterDyno. Tokens and passwords are masked; host names are not.
"""


def bundle(run: LoadedRun, case: CaseRecord, output: Path) -> tuple[list[str], int]:
    """Write the archive; returns the names in it, and its bytes. Owners, links and their times are not in it.

    Raises:
        OSError: a file cannot be read or the archive cannot be written.
    """
    top, when = f"{run.record.run_id}-{case.folder}", int((run.folder / RUN_FILE).stat().st_mtime)
    with tempfile.TemporaryDirectory(prefix="bundle") as temporary:
        root = Path(temporary) / top
        root.mkdir()
        for path in _files(run, case):
            copy = root / path.relative_to(run.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        one = run.record.model_copy(update={"cases": [case]})
        (root / RUN_FILE).write_text(record_text(one), encoding="utf-8")
        said = {"run": run.record.run_id, "case": case.name, "verdict": case.verdict.value, "reason": case.reason}
        about = README.format(**said, folder=case.folder, cases=CASES_FOLDER, run_file=RUN_FILE)
        (root / "README.txt").write_text(about, encoding="utf-8")
        with others_kept(keep=False):
            mask_files(root, secret_values({}, config=case.config))
        names = sorted(path for path in root.rglob("*") if path.is_file())
        with tempfile.TemporaryFile() as whole, whole_file(output) as file:
            with (
                gzip.GzipFile(filename="", fileobj=whole, mode="wb", mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w") as archive,
            ):
                for path in names:
                    _add(archive, path, f"{top}/{path.relative_to(root).as_posix()}", when)
            size = whole.tell()
            whole.seek(0)
            shutil.copyfileobj(whole, file)
    return [path.relative_to(root).as_posix() for path in names], size


def _files(run: LoadedRun, case: CaseRecord) -> Iterator[Path]:
    for folder in (run.folder / case.folder, run.folder / CASES_FOLDER):
        for path in sorted(folder.rglob("*")) if not folder.is_symlink() else ():
            of_this = folder.name == case.folder or path.name == f"{case.folder}.json"
            if of_this and path.is_file() and not path.is_symlink():
                yield path


def _add(archive: tarfile.TarFile, path: Path, name: str, when: int) -> None:
    """Add a file. `when`, in s since 1970, is that of the run: the same bundle has the same bytes."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = path.stat().st_size, when, 0o644
    with path.open("rb") as content:
        archive.addfile(entry, content)
