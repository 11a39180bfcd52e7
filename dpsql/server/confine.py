"""What a process may still reach, by Linux's Landlock: it gives up files and the network for good, without being root.

The front reads Python's own files and the server's folder, and nothing else: neither the data nor the ledger, whoever
takes it over. A process that is confined cannot look into one that is not. Where the kernel has no Landlock (other
systems, Linux before 5.13), `confine` says so, and docs/server.md tells what to do instead.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38
READ_FILE, READ_FOLDER, EXECUTE = 1 << 2, 1 << 3, 1 << 0
FILES_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Each way to use a file that a version of Landlock knows."""
BIND, CONNECT = 1, 2
NETWORK_SINCE = 4
SIGNALS, SIGNALS_SINCE = 3, 6
"""No signals and no abstract sockets of processes outside."""
SYSTEM = ("/usr/lib", "/usr/share/zoneinfo", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl")
OWN = (
    "/dev/null",
    "/dev/urandom",
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/sys/fs/cgroup",
    "/sys/devices/system",
)


def version() -> int:
    """The version of Landlock; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    found = ctypes.CDLL(None, use_errno=True).syscall(CREATE_RULESET, None, 0, ASK_VERSION)
    return max(0, int(found))


def python_files() -> list[str]:
    """Where Python and its packages are: not the folder that they are run from."""
    paths = sysconfig.get_paths()
    here = str(Path(__file__).parents[1])
    return [here, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]


def confine(readable: Iterable[str] | None, *, network: bool) -> bool:
    """Gives up all files but these, which can be read (None: keeps files as they are), and TCP unless `network`.

    Sockets that are open already stay. It holds for this thread and for those that it starts later, so it comes first.
    Returns whether all of it was possible: TCP is since Linux 6.7. UDP and sockets with a path stay.
    """
    known = version()
    if known == 0:
        return False
    files = 0 if readable is None else FILES_BY_VERSION[min(known, max(FILES_BY_VERSION))]
    tcp = 0 if network or known < NETWORK_SINCE else BIND | CONNECT
    if not files and not tcp:
        return network
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = [files, *([tcp] if known >= NETWORK_SINCE else []), *([SIGNALS] if known >= SIGNALS_SINCE else [])]
    attributes = struct.pack(f"={len(wanted)}Q", *wanted)
    rules = libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return False
    try:
        for path in readable or ():
            _allow(libc, rules, path)
        if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(RESTRICT_SELF, rules, 0) == 0) and (network or bool(tcp))
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = READ_FILE | (READ_FOLDER if Path(path).is_dir() else 0)
        libc.syscall(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
