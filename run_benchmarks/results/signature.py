"""Signs the seal of a run with an SSH key (`ssh-keygen -Y sign`), and checks such a signature."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common.reading import read_bounded
from run_benchmarks.results.records import MAX_RECORD_BYTES, write_text
from run_benchmarks.results.seal import SEAL_FILE, SIGNATURE_FILE

PROGRAM = "ssh-keygen"
NAMESPACE = "clusterdyno-seal"  # a signature for another purpose is none of a seal
SECONDS = 30.0
MAX_BYTES = 64 << 10
SHOWN_CHARACTERS = 300


class SignatureError(Exception):
    """A seal cannot be signed, or its signature is none of the signers'; the message says why."""


def sign_seal(folder: Path, key: Path | None) -> str:
    """Sign the seal of a run with a private key, or one of an agent; returns why that failed, or "".

    Without a terminal nobody is asked for a passphrase: a key that has one must be held by an agent.
    """
    if key is None:
        return ""
    try:
        words = ("sign", "-f", str(key), "-n", NAMESPACE)
        write_text(folder / SIGNATURE_FILE, _said(words, read_bounded(folder / SEAL_FILE, MAX_RECORD_BYTES)))
    except (OSError, SignatureError) as error:
        return f"{SEAL_FILE} is not signed with SEAL_KEY {key}: {error}"
    return ""


def signer_of(folder: Path, signers: Path | None) -> str:
    """Who signed the seal, in words; "" for a seal without a signature where no signers are asked for.

    Args:
        signers: a file of allowed signers (ssh-keygen(1)); None: any key, which is named.

    Raises:
        SignatureError: the signature is missing, broken, of another file, or by none of `signers`.
    """
    try:
        signature = read_bounded(folder / SIGNATURE_FILE, MAX_BYTES)
    except FileNotFoundError:
        if signers is None:
            return ""
        raise SignatureError("missing: the seal is not signed") from None
    except OSError as error:
        raise SignatureError(f"cannot be read: {error.strerror}") from error
    seal = read_bounded(folder / SEAL_FILE, MAX_RECORD_BYTES)
    with tempfile.NamedTemporaryFile() as copy:  # ssh-keygen would wait for a pipe
        copy.write(signature)
        copy.flush()
        if signers is None:
            good = _said(("check-novalidate", "-n", NAMESPACE, "-s", copy.name), seal)
            return f"{good.strip()}; --signers FILE says whose key that is"
        found = _said(("find-principals", "-s", copy.name, "-f", str(signers)), b"").splitlines()
        name = found[0].split(",")[0] if found else ""
        return _said(("verify", "-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", copy.name), seal).strip()


def _said(words: Sequence[str], data: bytes) -> str:
    """The output of ssh-keygen -Y."""
    try:
        done = subprocess.run(
            [PROGRAM, "-Y", *words], input=data, capture_output=True, timeout=SECONDS, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SignatureError(f"{PROGRAM}: {error}") from error
    if done.returncode:
        why = " ".join((done.stderr + done.stdout).decode("utf-8", "replace").split())
        raise SignatureError(f"{PROGRAM}: {why[:SHOWN_CHARACTERS] or f'exit code {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
