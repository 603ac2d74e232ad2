"""Masks tokens, passwords and keys in everything that is written: records, launch logs, output of workloads."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

MASK = "***"
# For environment variables: names hold words in any order; masking too much is better than too little.
SECRET_VARIABLE = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|(?:^|_)PASS(?:_|$)|_PWD$|CREDENTIAL|AUTH|(?:API|ACCESS)_?KEY|(?:^|_)KEY$|PRIVATE"
    r"|(?:^|_)PAT(?:_|$)|COOKIE|WEBHOOK",
    re.IGNORECASE,
)
# For settings and options: the last word counts, since `tokenizer`, `max_tokens` and `experts_per_token` are none.
_WORDS = (
    r"(?:(?<!per[_-])token|secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|private|secret)[_-]?key"
    r"|pat|cookies?|webhook(?:[_-]?url)?)"
)
SECRET_SETTING = re.compile(rf"(?:^|[_.-]){_WORDS}$", re.IGNORECASE)
# In text that may be JSON: the value ends at the end of a JSON string or of a list item.
SECRET_ASSIGNMENT = re.compile(rf"(?<![A-Za-z0-9])({_WORDS}=\\?[\"']?)[^\s\"'&,;)\]}}\\]+", re.IGNORECASE)
# `"hf_token": "..."`, also within a JSON string, where the quotes are escaped; up to the same quote or the line's end.
SECRET_MEMBER = re.compile(
    rf"(?<![A-Za-z0-9])({_WORDS}(\\*[\"'])[ \t]*:[ \t]*\2)(?:(?!\2)(?:\\.|[^\n]))+", re.IGNORECASE
)
# Every text that these patterns match has, in lower case, one of these words before one of these marks: searching for
# them first, and for letters that several of them have before that, is far faster.
_WORDS_OF: Mapping[str, Mapping[str, Sequence[str]]] = {
    "ok": {
        "token": ("token",),
        "cookie": ("cookie", "cookies"),
        "webhook": ("webhook", "webhookurl", "webhook_url", "webhook-url"),
    },
    "cre": {"secret": ("secret",), "credential": ("credential", "credentials")},
    "pass": {"pass": ("passwd", "password", "passphrase")},
    "pat": {"pat": ("pat",)},
    "key": {"key": ("key",)},
}
_MARKS = ("=", '"', "'", "\\")
KELVIN_SIGN = "\N{KELVIN SIGN}"  # beyond ASCII, and a k in lower case
# Shorter values of such names are words like `false` (TOKENIZERS_PARALLELISM), which are frequent in logs.
SHORTEST_SECRET = 8
URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
URL_TOKEN = re.compile(rf"(https?://)[^/\s:@]{{{SHORTEST_SECRET},}}@")  # in place of the user name
ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=.*", re.DOTALL)


def mask_text(text: str) -> str:
    """The text with passwords in URLs and bare tokens masked."""
    return URL_TOKEN.sub(rf"\1{MASK}@", URL_PASSWORD.sub(rf"\1:{MASK}@", text))


def secret_values(
    environment: Mapping[str, str], argv: Sequence[str] = (), config: Mapping[str, Any] | None = None
) -> frozenset[str]:
    """Values of secret names in an environment, in `name=value` words and in a case's settings.

    Each is taken line by line, as text and as JSON has it.
    """
    values = [value for name, value in environment.items() if SECRET_VARIABLE.search(name)]
    assignments = [match for word in argv if (match := ASSIGNMENT.fullmatch(word))]
    values += [match[0][match.end(1) + 1 :].strip("\"'") for match in assignments if SECRET_SETTING.search(match[1])]
    values += _secret_settings(config or {})
    lines = {line.strip() for value in values for line in value.splitlines()}
    lines = {line for line in lines if len(line) >= SHORTEST_SECRET}
    return frozenset(lines | {json.dumps(line)[1:-1] for line in lines})


def _secret_settings(config: Mapping[str, Any]) -> Iterator[str]:
    """The values of telling names in a JSON object, nested as it may be."""
    pending: list[tuple[bool, Any]] = [(False, config)]
    while pending:
        secret, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(secret or bool(SECRET_SETTING.search(key)), item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            pending += [(secret, item) for item in value]
        elif secret and value is not None:
            yield str(value)


def mask_output(text: str, secrets: Collection[str]) -> str:
    """Output of a program with these values masked, values after `token=` and the like, and passwords in URLs."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    if _may_assign(text):
        text = "\n".join(_masked_members(line) if _may_assign(line) else line for line in text.split("\n"))
    return mask_text(text) if "://" in text else text


def _masked_members(line: str) -> str:
    return SECRET_MEMBER.sub(rf"\1{MASK}", SECRET_ASSIGNMENT.sub(rf"\1{MASK}", line))


def may_mask(data: bytes, secrets: Collection[bytes]) -> bool:
    """Whether `mask_output` might change these bytes, read as UTF-8; a no is sure, and far faster."""
    if (b"@" in data and b"://" in data) or any(secret in data for secret in secrets):
        return True
    return KELVIN_SIGN.encode() in data or _may_assign(data.decode("latin-1"))


def telling_words() -> list[str]:
    """Words of which text has one, in lower case, wherever `mask_output` changes it without knowing its secrets."""
    words = [word for parts in _WORDS_OF.values() for each in parts.values() for word in each]
    return [*(word + mark for word in words for mark in _MARKS), "://", KELVIN_SIGN]


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Spans (first, end) of what is masked whatever the values are, including the name before it."""
    patterns = [URL_PASSWORD, URL_TOKEN, *([SECRET_ASSIGNMENT, SECRET_MEMBER] if _may_assign(text) else [])]
    return [match.span() for pattern in patterns for match in pattern.finditer(text)]


def _may_assign(text: str) -> bool:
    small = text.lower()
    parts = (parts for letters, parts in _WORDS_OF.items() if letters in small)
    words = (word for each in parts for part, words in each.items() if part in small for word in words)
    return any(word + mark in small for word in words for mark in _MARKS)


def mask_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the values of secret names and passwords in URLs masked."""
    return {name: MASK if SECRET_VARIABLE.search(name) else mask_text(value) for name, value in environment.items()}


def mask_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object of any depth with the values of secret names and passwords in URLs masked."""
    return {
        key: MASK if SECRET_SETTING.search(key) and item is not None else _mask_value(item)
        for key, item in config.items()
    }


def _mask_value(value: Any) -> Any:
    if isinstance(value, dict):
        return mask_config(value)
    if isinstance(value, list):
        return [_mask_value(item) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def mask_argv(argv: Sequence[str]) -> list[str]:
    """The command with the values of secret options masked: `--api_key X`, `--api_key=X` and `--set api_key=X`."""
    masked: list[str] = []
    is_secret = False
    for word in argv:
        assignment = ASSIGNMENT.fullmatch(word)
        if is_secret:
            masked.append(MASK)
        elif assignment is not None and SECRET_SETTING.search(assignment[1]):
            masked.append(f"{assignment[1]}={MASK}")
        else:
            masked.append(mask_text(word))
        is_secret = not is_secret and word.startswith("--") and bool(SECRET_SETTING.search(word))
    return masked
