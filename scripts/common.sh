# For scripts/bench and scripts/test: a virtual environment beside the project, made once.
# shellcheck shell=bash

root=$(unset CDPATH && cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python

die() {
    printf '%s: %s\n' "scripts/$(basename -- "$0")" "$1" >&2
    exit 1
}

# Prints a command that runs Python >=3.10,<3.14. Each candidate is run, for one that is found may not work.
find_python() {
    local candidate unfit="" candidates=(python3 python3.13 python3.12 python3.11 python3.10)
    if [[ ${PYTHON-} ]]; then
        candidates=("$PYTHON")
    fi
    for candidate in "${candidates[@]}"; do
        fits "$candidate" || continue
        if "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
        unfit=$candidate
    done
    if [[ $unfit ]]; then
        die "$unfit has no venv module with ensurepip. On Debian and Ubuntu: apt install python3-venv"
    elif [[ ${PYTHON-} ]]; then
        die "PYTHON=$PYTHON is no working Python from 3.10 to 3.13. Set PYTHON to one, or unset it"
    fi
    die "no Python from 3.10 to 3.13 found. Install one, or name it: PYTHON=/path/to/python $0"
}

fits() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' 2>/dev/null
}

# Makes the environment hold the project with extras $1 ("" or "[dev]"). Cheap where it does already: a
# stamp, written last, says so.
set_up() {
    local wanted stamps
    wanted="$root $(cksum < "$root/pyproject.toml")"
    stamps=("$venv/installed$1")
    [[ $1 ]] || stamps+=("$venv/installed[dev]")
    is_stamped "$wanted" "${stamps[@]}" && return

    # One set-up at a time; the lock ends with the processes that hold descriptor 9.
    exec 9< "$root/pyproject.toml"
    if command -v flock > /dev/null && ! flock -n 9; then
        echo "Waiting for another set-up of $venv ..." >&2
        flock -w 3600 9 || die "another set-up of $venv has not ended within an hour"
    fi
    if ! is_stamped "$wanted" "${stamps[@]}"; then
        make_venv
        echo "Installing the project and what it needs into $venv (once; PyTorch is large) ..." >&2
        (cd -- "$root" && PIP_USER=0 "$python" -m pip install -q --disable-pip-version-check -e ".$1") ||
            die "installing failed, for the reason that pip gives above. It needs a package index: the network, \
or PIP_INDEX_URL, or PIP_FIND_LINKS and PIP_NO_INDEX=1. Then call this again"
        printf '%s\n' "$wanted" > "$venv/installed$1"
    fi
    exec 9<&-
}

# Whether one of the stamps $2... says $1, and the interpreter is still there.
is_stamped() {
    local wanted=$1 stamp
    shift
    [[ -x $python ]] || return 1
    for stamp; do
        [[ -f $stamp && $(< "$stamp") == "$wanted" ]] && return
    done
    return 1
}

# Keeps an environment that works, finishes one that is half made, and removes nothing but a broken one.
make_venv() {
    local base
    if "$python" -c '' 2> /dev/null; then
        fits "$python" || die "$venv is not of Python 3.10 to 3.13. Move it away and call this again"
        "$python" -m pip --version > /dev/null 2>&1 || "$python" -m ensurepip > /dev/null ||
            die "$venv has no pip, and ensurepip cannot give it one. Move it away and call this again"
        return
    fi
    [[ ! -e $venv || -e $venv/pyvenv.cfg ]] || die "$venv is no virtual environment. Move it away and call this again"
    base=$(find_python) || exit 1
    echo "Making $venv with $("$base" --version) ..." >&2
    "$base" -m venv --clear "$venv" || die "$base -m venv failed, for the reason above"
}
