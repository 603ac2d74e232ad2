"""Reads OpenSSH's client configuration (~/.ssh/config): the options of each host.

paramiko reads the format and matches Host and Match; this module adds Include, the tokens of known_hosts paths, and the
refusal of lines that paramiko would misread.
"""

import functools
import getpass
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.config import SSHConfigDict
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

USER_FILE, SYSTEM_FILE = Path("~/.ssh/config"), Path("/etc/ssh/ssh_config")
MAX_DEPTH = 16  # of files that include files, as in OpenSSH
LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)\s*$")
COMMENT = re.compile(r"""((?:"[^"]*"|[^"#]|(?<=\S)#)*?)\s#.*$""")
RAW = frozenset({"proxycommand", "localcommand", "remotecommand", "knownhostscommand"})
MATCHES = frozenset({"all", "canonical", "final", "exec", "host", "originalhost", "user", "localuser"})
USED_WORDS = """
hostname port user identityfile certificatefile identitiesonly identityagent userknownhostsfile globalknownhostsfile
hostkeyalias proxyjump proxycommand canonicalizehostname canonicaldomains canonicalizemaxdots canonicalizefallbacklocal
ignoreunknown
"""
# For interactive sessions or other login methods, or decided here: a command's result does not depend on them.
WITHOUT_EFFECT_WORDS = """
addkeystoagent batchmode challengeresponseauthentication checkhostip clearallforwardings compression connecttimeout
connectionattempts controlmaster controlpath controlpersist dynamicforward enableescapecommandline enablesshkeysign
escapechar exitonforwardfailure fingerprinthash forkafterauthentication forwardagent forwardx11 forwardx11timeout
forwardx11trusted gatewayports gssapiauthentication gssapidelegatecredentials hashknownhosts hostbasedauthentication
ipqos kbdinteractiveauthentication localcommand localforward loglevel logverbose nohostauthenticationforlocalhost
numberofpasswordprompts obscurekeystroketiming passwordauthentication permitlocalcommand permitremoteopen
preferredauthentications protocol pubkeyauthentication remoteforward requesttty sendenv serveralivecountmax
serveraliveinterval sessiontype stdinnull streamlocalbindmask streamlocalbindunlink syslogfacility tcpkeepalive tunnel
tunneldevice updatehostkeys usekeychain verifyhostkeydns visualhostkey xauthlocation
"""
USED, WITHOUT_EFFECT = frozenset(USED_WORDS.split()), frozenset(WITHOUT_EFFECT_WORDS.split())


class SshConfigError(Exception):
    """A file cannot be used: `file`, `place` (a line, or a host) and the mistake."""

    def __init__(self, file: Path, place: str, value: str, message: str) -> None:
        self.file, self.place, self.value = file, place, value
        super().__init__(message)


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The options of a host; None or empty if the configuration has none.

    `unused` holds the options that are not implemented here, each as `Keyword value`.
    """

    address: str
    port: int | None
    user: str | None
    identities: tuple[Path, ...]
    certificates: tuple[Path, ...]
    identities_only: bool
    agent: bool
    user_known_hosts: tuple[Path, ...] | None
    global_known_hosts: tuple[Path, ...] | None
    host_key_alias: str
    jumps: str
    proxy_command: str
    unused: tuple[str, ...]


class _MatchExecError(Exception):
    """A block depends on a command."""


class _Config(paramiko.SSHConfig):
    """paramiko's reader, without its look-up of this machine's name in DNS for every key file."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._uses_fqdn = any("%l" in line for line in lines)
        self.parse(lines)

    def _allowed_tokens(self, key: str) -> list[str]:
        if key == "match-exec":  # paramiko would run it with our stdin, and without a limit
            raise _MatchExecError
        tokens: list[str] = super()._allowed_tokens(key)  # type: ignore[misc]
        return tokens if self._uses_fqdn else [token for token in tokens if token != "%l"]


class SshConfig:
    """The configuration of several files; the first value of a keyword counts.

    Raises:
        SshConfigError: a file cannot be read, or holds lines that would be misread.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self._lines = [line for file in files for line in ("Host *\n", *_lines(file, 0, "Host *"))]

    def lookup(self, host: str, user: str | None = None, port: int | None = None) -> HostOptions:
        """The options of a host; a given user and port take precedence over those of the files.

        Raises:
            SshConfigError: a value for the host is unusable.
        """
        file = self.files[0] if self.files else USER_FILE
        try:
            found = self._parsed(user, port).lookup(host)
            return _options(found, host)
        except _MatchExecError as error:
            allowed = "Match exec is not supported: write Host, or name another file as SSH_CONFIG"
            raise SshConfigError(file, host, "Match exec", allowed) from error
        except (ConfigParseError, CouldNotCanonicalize, KeyError, ValueError) as error:
            raise SshConfigError(file, host, str(error), f"cannot be understood for {host}") from error

    @functools.lru_cache(maxsize=64)  # noqa: B019 one object a run, and few users and ports
    def _parsed(self, user: str | None, port: int | None) -> _Config:
        given = [f"User {user}\n"] if user else []
        given += [f"Port {port}\n"] if port else []
        return _Config([*given, *self._lines])


def default_files() -> tuple[Path, ...]:
    """The existing files that ssh reads: the user's, then the system's."""
    return tuple(path for path in (USER_FILE.expanduser(), SYSTEM_FILE) if path.is_file())


def _lines(file: Path, depth: int, block: str) -> Iterator[str]:
    """A file's lines with those of the files that it includes; `block` is the Host or Match line of the Include.

    After an included file the block of the Include continues.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise SshConfigError(file, "file", "", f"cannot be read: {error.strerror}") from error
    outer = block
    for number, line in enumerate(text.splitlines(), 1):
        found = LINE.match(line)
        if found is None or line.lstrip().startswith("#"):
            continue
        keyword, value = found[1].lower(), found[2]
        if keyword not in RAW:
            value = COMMENT.sub(r"\1", value).rstrip()
        place = f"line {number}"
        if keyword in ("host", "match"):
            if depth and outer != "Host *":
                allowed = f"no {found[1]} in a file whose Include stands in `{outer}`: put the Include before any Host"
                raise SshConfigError(file, place, line.strip(), allowed)
            block = f"{found[1]} {value}"
            if keyword == "match":
                _check_match(file, place, value)
        if keyword == "include":
            for path in _included(file, place, value):
                if depth >= MAX_DEPTH:
                    raise SshConfigError(file, place, value, f"files that include files more than {MAX_DEPTH} deep")
                yield from _lines(path, depth + 1, block)
                yield f"{block}\n"
            continue
        yield f"{found[1]} {value}\n"


def _check_match(file: Path, place: str, value: str) -> None:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise SshConfigError(file, place, value, f"cannot be read: {error}") from error
    while words:
        word = words.pop(0).removeprefix("!").lower()
        if word not in MATCHES:
            raise SshConfigError(
                file, place, f"Match {value}", f"Match with {', '.join(sorted(MATCHES))}; not {word!r}"
            )
        if word not in ("all", "canonical", "final") and words:
            words.pop(0)


def _included(file: Path, place: str, value: str) -> Iterator[Path]:
    """The files of an Include in order; relative to the user's ~/.ssh, or to the system file's folder."""
    folder = SYSTEM_FILE.parent if file.is_relative_to(SYSTEM_FILE.parent) else USER_FILE.expanduser().parent
    try:
        patterns = shlex.split(value)
    except ValueError as error:
        raise SshConfigError(file, place, value, f"cannot be read: {error}") from error
    for pattern in patterns:
        path = folder / os.path.expandvars(Path(pattern).expanduser())
        yield from sorted(
            match for match in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if match.is_file()
        )


def _options(found: SSHConfigDict, host: str) -> HostOptions:
    address, user = str(found["hostname"]), found.get("user")
    port = int(found["port"]) if "port" in found else None
    tokens = {"%%": "%", "%h": address, "%n": host, "%p": str(port or 22), "%r": user or getpass.getuser()}
    tokens |= {"%u": getpass.getuser(), "%d": str(Path.home()), "%k": found.get("hostkeyalias", host)}

    def paths(key: str) -> tuple[Path, ...]:
        value: object = found.get(key, "")
        words = value if isinstance(value, list) else shlex.split(str(value))
        return tuple(_path(word, tokens) for word in words if word.lower() not in ("none", "/dev/null"))

    # The first of ProxyJump and ProxyCommand counts.
    ways = [key for key in found if key in ("proxyjump", "proxycommand")]
    way = ways[0] if ways else ""
    value = found.get(way) or "none"
    return HostOptions(
        address=address,
        port=port,
        user=user,
        identities=paths("identityfile"),
        certificates=paths("certificatefile"),
        identities_only=found.get("identitiesonly", "no").lower() == "yes",
        agent=found.get("identityagent", "").lower() != "none",
        user_known_hosts=paths("userknownhostsfile") if "userknownhostsfile" in found else None,
        global_known_hosts=paths("globalknownhostsfile") if "globalknownhostsfile" in found else None,
        host_key_alias=found.get("hostkeyalias", ""),
        jumps=value if way == "proxyjump" and value.lower() != "none" else "",
        proxy_command=_expanded(value, tokens) if way == "proxycommand" and value.lower() != "none" else "",
        unused=tuple(_unused(found)),
    )


def _expanded(text: str, tokens: dict[str, str]) -> str:
    """The text with its tokens replaced."""

    def value(match: re.Match[str]) -> str:
        if match[0] not in tokens:
            raise ValueError(f"{match[0]} in {text!r}: known tokens are {', '.join(sorted(tokens))}")
        return tokens[match[0]]

    return re.sub("%.", value, text)


def _path(text: str, tokens: dict[str, str]) -> Path:
    return Path(os.path.expandvars(_expanded(text, tokens))).expanduser()


def _unused(found: SSHConfigDict) -> Iterator[str]:
    for key, value in found.items():
        if key == "stricthostkeychecking" and value.lower() in ("yes", "ask"):
            continue
        if key == "identityagent" and value.lower() not in ("none", "ssh_auth_sock"):
            yield f"IdentityAgent {value}"
        elif key not in USED | WITHOUT_EFFECT:
            yield f"{key} {value}"
