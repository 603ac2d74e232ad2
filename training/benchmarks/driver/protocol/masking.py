"""Keeps tokens, passwords and keys out of what is written down: records, logs of launches, output of workloads."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

MASK = "***"
# Of environment variables: their names hold words in any order, and too much masked is better than too little.
SECRET_VARIABLE = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|(?:^|_)PASS(?:_|$)|_PWD$|CREDENTIAL|AUTH|(?:API|ACCESS)_?KEY|(?:^|_)KEY$|PRIVATE",
    re.IGNORECASE,
)
# Of settings and options: the last word counts, since `tokenizer` and `max_tokens` are none.
_WORDS = r"(?:token|secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|private|secret)[_-]?key)"
SECRET_SETTING = re.compile(rf"(?:^|[_.-]){_WORDS}$", re.IGNORECASE)
# In text that may be JSON: the value ends where a JSON string or a list of arguments would.
SECRET_ASSIGNMENT = re.compile(rf"(?<![A-Za-z0-9])({_WORDS}=\\?[\"']?)[^\s\"'&,;)\]}}\\]+", re.IGNORECASE)
# In small letters, one of these is in every text that the pattern matches; that it has none is found far faster so.
ASSIGNED = ("token=", "secret=", "passwd=", "password=", "passphrase=", "credential=", "credentials=", "key=")
# Shorter values of telling names are words such as `false` (TOKENIZERS_PARALLELISM), which logs are full of.
SHORTEST_SECRET = 8
URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
URL_TOKEN = re.compile(rf"(https?://)[^/\s:@]{{{SHORTEST_SECRET},}}@")  # in the place of a user's name
ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=.*", re.DOTALL)


def mask_text(text: str) -> str:
    """The text with the passwords in its URLs masked, and tokens that stand there alone."""
    return URL_TOKEN.sub(rf"\1{MASK}@", URL_PASSWORD.sub(rf"\1:{MASK}@", text))


def secret_values(environment: Mapping[str, str], argv: Sequence[str] = ()) -> frozenset[str]:
    """The values of telling names in an environment and among `name=value` words, line by line, as text and in JSON."""
    values = [value for name, value in environment.items() if SECRET_VARIABLE.search(name)]
    assignments = [match for word in argv if (match := ASSIGNMENT.fullmatch(word))]
    values += [match[0][match.end(1) + 1 :].strip("\"'") for match in assignments if SECRET_SETTING.search(match[1])]
    lines = {line.strip() for value in values for line in value.splitlines()}
    lines = {line for line in lines if len(line) >= SHORTEST_SECRET}
    return frozenset(lines | {json.dumps(line)[1:-1] for line in lines})


def mask_output(text: str, secrets: Collection[str]) -> str:
    """Output of a program with these values masked, those after `token=` and the like, and passwords in URLs."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    if _may_assign(text):
        text = "\n".join(
            SECRET_ASSIGNMENT.sub(rf"\1{MASK}", line) if _may_assign(line) else line for line in text.split("\n")
        )
    return mask_text(text) if "://" in text else text


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Where that stands which is masked in every output, whatever the known values are; with what tells it."""
    patterns = [URL_PASSWORD, URL_TOKEN, *([SECRET_ASSIGNMENT] if _may_assign(text) else [])]
    return [match.span() for pattern in patterns for match in pattern.finditer(text)]


def _may_assign(text: str) -> bool:
    if "=" not in text:
        return False
    small = text.lower()
    return any(word in small for word in ASSIGNED)


def mask_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the values of telling names masked, and passwords in URLs."""
    return {name: MASK if SECRET_VARIABLE.search(name) else mask_text(value) for name, value in environment.items()}


def mask_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object, nested as it may be, with the values of telling names masked, and passwords in URLs."""
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
    """The command with the values of telling options masked, as `--api_key X`, `--api_key=X` and `--set api_key=X`."""
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
