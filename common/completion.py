"""Writes what bash needs to complete a program that is called as a script or a module of a Python."""

import shlex
import sys
from collections.abc import Mapping, Sequence

# One function completes the interpreter, and asks that of the program: several scripts can be loaded side by side.
_SCRIPT = """\
_clusterdyno_{name}() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" verb= words= index next
    for ((index = {first}; index < COMP_CWORD; index++)); do
        next="${{verb:+$verb }}${{COMP_WORDS[index]}}"
        case "$next" in {verbs}) verb=$next ;; esac
    done
    case "$verb" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
_clusterdyno() {{
    local name
    case "${{COMP_WORDS[1]}}" in
        *run.py) name=run ;;
        -m) name="${{COMP_WORDS[2]}}" ;;
        *) return 0 ;;
    esac
    ! declare -F "_clusterdyno_$name" >/dev/null || "_clusterdyno_$name"
}}
complete -o default -F _clusterdyno {pythons}"""


def script(name: str, first: int, words: Mapping[str, Sequence[str]]) -> str:
    """The script of a program. name: `run`, or its module, and a word behind it that stands before every verb. first:
    which word of a command line follows the script or the module.

    words: what may follow each verb, "" being none yet; a word may be anything that the shell expands.
    """
    name, *within = name.split()
    for word in within:
        words = {"": [word], **{f"{word} {verb}".rstrip(): each for verb, each in words.items()}}
    cases = "\n".join(f'        "{verb}") words="{" ".join(each)}" ;;' for verb, each in words.items())
    verbs = "|".join(shlex.quote(verb) for verb in words if verb)
    pythons = shlex.join(dict.fromkeys([".venv/bin/python", sys.executable]))
    return _SCRIPT.format(name=name, first=first, verbs=verbs, cases=cases, pythons=pythons)
