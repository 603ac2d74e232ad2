#!/usr/bin/env bash
# Makes a virtual environment: make_venv.sh FOLDER [PYTHON]. Without PYTHON the first that is 3.11 or later and can make
# one; on Debian, as root, python3-venv is installed where there is none.
set -euo pipefail
folder=$1
shift

usable() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
        if command -v "$candidate" >/dev/null && usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

if [ $# -gt 0 ]; then
    python=$1
    if ! usable "$python"; then
        echo "PYTHON=$python: needs Python 3.11 or later with the modules venv and ensurepip" >&2
        exit 1
    fi
elif ! python=$(find_python); then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "no Python 3.11 or later that can make a virtual environment; on Debian or Ubuntu: sudo apt-get install python3-venv" >&2
        exit 1
    fi
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv
    python=$(find_python)
fi
echo "virtual environment $folder with $("$python" -V)"
"$python" -m venv "$folder"
