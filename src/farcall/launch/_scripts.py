"""The scripts that run on a device. They are plain ``sh``: BusyBox, toybox (Android), dash, bash.

A server that was started has a folder ``run-HASH-PID-START``: the hash of its program, the number of its
process, and the time at which that process began, in the kernel's ticks. The kernel uses a number again for
other processes; with the time it is exact, so that no other process is ever stopped. While a launcher watches
over the server, the folder has a file ``watcher`` with the same two numbers of the launcher's shell on the
device. A server whose watcher is gone is stale: the next launch stops it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farcall.launch._started import Place

# begun: field 22 of /proc/PID/stat, counted from behind the name, which may hold spaces. Z: it has ended.
_FUNCTIONS = """
begun() {
  { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 0
  set -- ${line##*) }
  [ "$1" = Z ] || echo "${20}"
}
alive() { [ -n "$2" ] && [ "$(begun "$1")" = "$2" ]; }
stop() {
  alive "$1" "$2" || return 0
  kill -s TERM -- "-$1" 2>/dev/null || kill "$1"
  i=0
  while alive "$1" "$2" && [ $i -lt 200 ]; do
    i=$((i + 1))
    [ $i -eq 100 ] && kill -s KILL -- "-$1"
    sleep 0.02
  done
  kill -s KILL -- "-$1" 2>/dev/null
  return 0
}
of_run() { rest=${1#run-*-}; pid=${rest%-*}; began=${rest#*-}; }
"""

_PREPARE = """
umask 077
mkdir -p {folder} && cd {folder} || exit 1
[ -O . ] || {{ echo "$PWD belongs to another user" >&2; exit 1; }}
chmod 700 .
echo "folder $(pwd -P)"
echo "machine $(uname -m)"
echo "page $(getconf PAGESIZE 2>/dev/null)"
echo "features $(grep -m1 -E '^(flags|Features)' /proc/cpuinfo)"
find . -maxdepth 1 -name '.new-*' -mmin +60 -exec rm -f {{}} + -o \\
  -maxdepth 1 '(' -name 'files-*' -o -name 'log-*' ')' -mtime +1 -exec rm -rf {{}} + 2>/dev/null
for program in server-*; do
  [ -f "$program" ] && echo "program $program"
done
for run in run-*-*-*; do
  [ -d "$run" ] || continue
  of_run "$run"
  watcher=
  {{ read -r watcher since < "$run/watcher"; }} 2>/dev/null
  if [ -z "$watcher" ]; then
    alive "$pid" "$began" && {{ echo "running $run"; continue; }}
  else
    alive "$watcher" "$since" && continue
    stop "$pid" "$began"
  fi
  rm -rf "$run"
done
exit 0
"""

# The inner shell becomes the server, so that its number is the server's. `read` ends with the launcher. The
# outer shell waits for the server: the launcher would not notice its end, since the shells hold its output.
_START = """
cd {folder} || exit 1
export FUNCTIONS='{functions}'
watched="$$ $(begun $$)"
exec 3<&0
setsid sh -c '
  eval "$FUNCTIONS"
  run=run-{hash}-$$-$(begun $$)
  mkdir -p -m 700 "$run/files" && echo "$1" > "$run/watcher" || exit 1
  echo "$run"
  unset FUNCTIONS
  exec {words} --listen {url} {options} 2> "$run/log"
' farcall "$watched" < /dev/null 3<&- &
pid=$!
began=$(begun $pid)
exec 4>&1 > /dev/null 2>&1
trap 'exit 0' USR1
{{
  read -r word <&3
  if [ "$word" = keep ]; then
    rm -f run-{hash}-$pid-*/watcher
    echo kept >&4
    kill -s USR1 $$
  else
    stop "$pid" "$began"
    rm -rf run-{hash}-$pid-*
  fi
}} &
reader=$!
wait $pid
echo "ended $?" >&4
wait $reader
"""


def prepare(folder: str) -> str:
    """Makes the folder, tells about the machine, and removes what is stale. Prints ``WORD VALUE`` lines."""
    return _FUNCTIONS + _PREPARE.format(folder=folder)


def start(folder: str, words: Sequence[str], hash_: str, listens_at: str, options: str) -> str:
    """Starts a server, prints the name of its folder and then what it prints, and ends it with its input.

    When the server ends by itself, it prints ``ended STATUS``.
    If the last line of the input is ``keep``, it prints ``kept``, and the server stays.
    """
    url = listens_at.format(run="$PWD/$run")
    return _FUNCTIONS + _START.format(
        folder=shlex.quote(folder),
        functions=_FUNCTIONS,
        hash=hash_,
        words=shlex.join(words).replace("'", "'\\''"),
        url=f'"{url}"',
        options=options,
    )


def serve_standard_streams(folder: str, words: Sequence[str], log: str) -> str:
    """Serves one session on the standard streams, with a folder for its files that ends with it."""
    return (
        f"cd {shlex.quote(folder)} && files=$(mktemp -d ./files-XXXXXX) || exit 1\n"
        f'{shlex.join(words)} --stdio --workpath "$files" 2>> {log}\n'
        'rm -rf "$files"'
    )


def stop(place: Place) -> str:
    """Stops a server, exactly that one, and removes its folder and its log."""
    where, run, log = map(shlex.quote, (place.folder, place.run, place.log))
    end = f'of_run {run}\nstop "$pid" "$began"\nrm -rf {run}' if place.run else f"rm -f {log}"
    return f"{_FUNCTIONS}\ncd {where} 2>/dev/null || exit 0\n{end}"


def is_alive(run: str) -> str:
    """Ends with status 0 if the server of a folder runs, else 1."""
    return f'{_FUNCTIONS}\nof_run {shlex.quote(run)}\nalive "$pid" "$began"'


def tail(path: str, lines: int) -> str:
    """Prints the last lines of a file; none if it does not exist."""
    return f"tail -n {lines} {shlex.quote(path)} 2>/dev/null || true"


def settle(temporary: str, path: str, size: int, sha256: str, mode: int) -> str:
    """Checks a file that arrived, and gives it its name in one step. Removes it if it is not whole."""
    new, name = shlex.quote(temporary), shlex.quote(path)
    return f"""
fail() {{ rm -f {new}; echo "$1" >&2; exit 1; }}
size=$(wc -c < {new}) || fail "it did not arrive"
[ "$size" -eq {size} ] || fail "only $size of {size} bytes arrived"
if command -v sha256sum > /dev/null; then
  echo "{sha256}  "{new} | sha256sum -c > /dev/null 2>&1 || fail "its bytes arrived changed"
fi
chmod {mode:o} {new} && mv -f {new} {name} || fail "it cannot be renamed"
"""


def prune(folder: str, keep: int) -> str:
    """Removes all servers in a folder but the latest ones."""
    return (
        f"cd {shlex.quote(folder)} && ls -t server-* 2>/dev/null | tail -n +{keep + 1} | while read -r old; "
        'do rm -f "$old"; done'
    )


def remove(path: str) -> str:
    """Removes a file, if it is there."""
    return f"rm -f {shlex.quote(path)}"
