"""Keeps tokens, passwords and keys out of what is written down: records, logs of launches, the PerfLog."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
# Of environment variables: their names hold words in any order, and too much masked is better than too little.
SECRET_VARIABLE = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|(API|ACCESS)_?KEY|PRIVATE", re.IGNORECASE)
# Of settings and options: the last word counts, since `tokenizer` and `max_tokens` are none.
SECRET_SETTING = re.compile(
    r"(?:^|[_.-])(?:token|secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|private|secret)[_-]?key)$",
    re.IGNORECASE,
)
URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=.*", re.DOTALL)


def mask_text(text: str) -> str:
    """The text with the passwords in its URLs masked."""
    return URL_PASSWORD.sub(rf"\1:{MASK}@", text)


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
