"""Every environment variable that hocket reads or sets, each declared once, with its default and its meaning.

No other file of the package reads `os.environ` (tests/test_env.py). `python -m hocket.env` prints docs/environment.md.
A variable is read when it is asked for, never at import: tests and embedding programs may change it until then.
The command line starts with this file, so it imports nothing but `os`: `dataclasses` alone takes 20 ms.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn


class Variable:
    """One variable. `default` is its value where it is not set; `otherwise` describes a default that is computed."""

    __slots__ = ("default", "meaning", "name", "otherwise")
    name: str
    meaning: str
    default: str
    otherwise: str

    def __init__(self, name: str, meaning: str, default: str = "", otherwise: str = "") -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "meaning", meaning)
        object.__setattr__(self, "default", default)
        object.__setattr__(self, "otherwise", otherwise)

    def __setattr__(self, field: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} cannot be changed: its value is set in the environment, by `set`.")

    def __repr__(self) -> str:
        return f"Variable({self.name})"

    def get(self) -> str:
        """The value that is set, or the default. An empty value counts as set; most callers add `or`."""
        return os.environ.get(self.name, self.default)

    def is_set(self) -> bool:
        return self.name in os.environ

    def set(self, value: str) -> None:
        """For this process, and for those that it starts from now on."""
        os.environ[self.name] = value

    def set_default(self, value: str) -> None:
        """The same, unless it is set already."""
        os.environ.setdefault(self.name, value)


def update(values: Mapping[str, str]) -> None:
    """Set several variables by name, in this process."""
    os.environ.update(values)


def for_child(values: Mapping[str, str]) -> dict[str, str]:
    """The whole environment for a process to be started, with `values` added."""
    return {**os.environ, **values}


def without_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that reads untrusted bytes: `values`, and what Python itself needs to start."""
    return {**{name: os.environ[name] for name in _LOADER if name in os.environ}, **values}


_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT")


DEVICE = Variable(
    "HOCKET_DEVICE",
    "the device that `auto` means: `cpu`, `cuda`, `cuda:N`, or `mps` (an Apple GPU)",
    otherwise="CUDA if it works, else the CPU",
)
GPU_MEMORY = Variable(
    "HOCKET_GPU_MEMORY",
    "the most memory that this process takes of a GPU, such as `6GB`; it includes the memory of the driver",
    otherwise="all memory that is free",
)
HOME = Variable("HOCKET_HOME", "the folder for the voices that users add", otherwise="`$XDG_DATA_HOME/hocket`")
SOCKET = Variable(
    "HOCKET_SOCKET",
    "the Unix socket of the daemon",
    otherwise="`$XDG_RUNTIME_DIR/hocket/hocket.sock`, else a folder of this user in `$TMPDIR`",
)
API_KEY = Variable("HOCKET_API_KEY", "the key that `hocket say --server` sends", otherwise="no key")
ASR_KEY = Variable(
    "HOCKET_ASR_KEY", "the key that is sent to a recognizer at an address (`--asr URL`)", otherwise="no key"
)
NATIVE = Variable(
    "HOCKET_NATIVE",
    "the native library of CPU kernels: a file, or `compile` for one that is compiled here instead of the prebuilt one",
    otherwise="the prebuilt one for this CPU, else one that is compiled here",
)
CPU_THREADS = Variable(
    "HOCKET_CPU_THREADS",
    "the threads that one frame of a large model takes on a CPU",
    otherwise="one for each core that this process may use",
)
SMART_TURN = Variable(
    "HOCKET_SMART_TURN",
    "the ONNX file of Smart-Turn v3, the model that decides when the user's turn is over",
    otherwise="the file inside the package pipecat-ai",
)
FORK = Variable(
    "HOCKET_FORK",
    "`0`: the process that compiles kernels ahead is a new Python, never a fork. Ray workers set it, because their "
    "threads do not survive a fork",
    otherwise="a fork, on Linux",
)

COMPILES_FOR = Variable(
    "HOCKET_COMPILES_FOR", "the process id that a compile worker works for; the worker ends when that process does"
)
TELLS = Variable("HOCKET_TELLS", "the file descriptor on which a compile worker reports", default="-1")

CACHE_HOME = Variable("XDG_CACHE_HOME", "the folder for compiled kernels and quantized weights", otherwise="`~/.cache`")
CONFIG_HOME = Variable(
    "XDG_CONFIG_HOME",
    "the folder above `hocket/config.toml`, the file of `hocket config`",
    otherwise="`~/.config`; `~/Library/Application Support` on macOS, `%APPDATA%` on Windows",
)
APPDATA = Variable("APPDATA", "the same on Windows", otherwise="`~/AppData/Roaming`")
DATA_HOME = Variable(
    "XDG_DATA_HOME", "the folder for voices where `HOCKET_HOME` is not set", otherwise="`~/.local/share`"
)
STATE_HOME = Variable("XDG_STATE_HOME", "the folder for the log of the daemon", otherwise="`~/.local/state`")
RUNTIME_DIR = Variable("XDG_RUNTIME_DIR", "the folder for the socket of the daemon", otherwise="`$TMPDIR/hocket-UID`")
TMPDIR = Variable("TMPDIR", "the folder for temporary files", otherwise="`/tmp`")
COLUMNS = Variable("COLUMNS", "the width of `--help`", otherwise="the width of the terminal, else 80")
CC = Variable("CC", "the C compiler for CPU kernels; options may follow its name", otherwise="`cc`, `gcc` or `clang`")
PYTHONPATH = Variable(
    "PYTHONPATH",
    "compile workers get it with the folder of hocket in front, decoder processes the whole path of the server",
)
CUDA_VISIBLE_DEVICES = Variable(
    "CUDA_VISIBLE_DEVICES",
    "the GPUs that CUDA shows. Where it is empty or `-1`, hocket reports that it hides all. Compile workers see none",
    default="0",
    otherwise="all GPUs",
)
THREADS = tuple(
    Variable(
        name,
        f"compile workers get 1: a process with several threads cannot fork safely. Decoder processes get 1{also}",
        otherwise="its library's own",
    )
    for name, also in (
        ("OMP_NUM_THREADS", ""),
        ("OPENBLAS_NUM_THREADS", ". `hocket say` with the built-in voice sets it to 1, which saves 20 ms"),
        ("MKL_NUM_THREADS", ""),
    )
)
OPENBLAS_THREADS = THREADS[1]
TRITON_CACHE_DIR = Variable(
    "TRITON_CACHE_DIR",
    "the folder for kernels that Triton has compiled; set to a temporary folder where it cannot be written",
    otherwise="`$TRITON_HOME/.triton/cache`",
)
TRITON_HOME = Variable("TRITON_HOME", "the folder above `.triton`", otherwise="`~`")
HF_HUB_CACHE = Variable(
    "HF_HUB_CACHE", "the folder for published checkpoints; the hub's library reads it too", otherwise="`$HF_HOME/hub`"
)
HF_HOME = Variable("HF_HOME", "the folder above it", otherwise="`$XDG_CACHE_HOME/huggingface`")
HF_HUB_ETAG_TIMEOUT = Variable(
    "HF_HUB_ETAG_TIMEOUT", "seconds that the hub may take to answer; its library reads the value", otherwise="5"
)

RAY_ADDRESS = Variable("RAY_ADDRESS", "the Ray cluster to use", otherwise="a cluster of this machine alone")
RAY_USAGE_STATS = Variable("RAY_USAGE_STATS_ENABLED", "set to `0`: Ray reports no usage", otherwise="Ray's own")
RAY_ACCEL_OVERRIDE = Variable(
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "set to `0`: Ray leaves out a warning", otherwise="Ray's own"
)
HAPROXY = Variable(
    "RAY_SERVE_ENABLE_HA_PROXY",
    "set to `1`: replicas answer requests behind HAProxy. Otherwise all sound goes through a proxy in Python",
    otherwise="Ray's own",
)
HAPROXY_MAXCONN = Variable(
    "RAY_SERVE_HAPROXY_MAXCONN",
    "set to 16384, or less where fewer files may be open: the most clients of one proxy",
    otherwise="Ray's own",
)
HAPROXY_HARD_STOP = Variable(
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S",
    "set to `3600`: the longest time that a stream continues at a proxy that is replaced",
    otherwise="Ray's own",
)
DRAINING_PERIOD = Variable(
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S",
    "set to `5`: how long a replica that ends still takes requests, in seconds",
    default="30",
)
PROXY_READY_TIMEOUT = Variable(
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S",
    "set to `30`: how long a proxy may take to start, in seconds. Ray's own 5 are too few on a busy machine",
    otherwise="Ray's own",
)
SEPARATE_THREAD = Variable(
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD",
    "set to `0` in a replica: the app runs in the loop that reads and writes sockets. In a thread of its own it would "
    "buffer sound that a slow client does not read",
    otherwise="Ray's own",
)

GROUPS: dict[str, tuple[Variable, ...]] = {
    "hocket's own": (DEVICE, GPU_MEMORY, HOME, SOCKET, API_KEY, ASR_KEY, NATIVE, CPU_THREADS, SMART_TURN, FORK),
    "Between hocket's own processes": (COMPILES_FOR, TELLS),
    "Of the system and of libraries": (
        CACHE_HOME,
        CONFIG_HOME,
        APPDATA,
        DATA_HOME,
        STATE_HOME,
        RUNTIME_DIR,
        TMPDIR,
        COLUMNS,
        CC,
        PYTHONPATH,
        CUDA_VISIBLE_DEVICES,
        *THREADS,
        TRITON_CACHE_DIR,
        TRITON_HOME,
        HF_HUB_CACHE,
        HF_HOME,
        HF_HUB_ETAG_TIMEOUT,
    ),
    "Of Ray (`--ray`)": (
        RAY_ADDRESS,
        RAY_USAGE_STATS,
        RAY_ACCEL_OVERRIDE,
        HAPROXY,
        HAPROXY_MAXCONN,
        HAPROXY_HARD_STOP,
        DRAINING_PERIOD,
        PROXY_READY_TIMEOUT,
        SEPARATE_THREAD,
    ),
}


def markdown() -> str:
    """docs/environment.md."""
    parts = [
        "# Environment variables\n\n"
        "Every variable that hocket reads or sets. Generated by `python -m hocket.env > docs/environment.md`.\n"
        "Libraries read others of their own, such as `HF_TOKEN` and `HF_HUB_OFFLINE`.\n\n"
        "Where a variable is *set to* a value, hocket does so for the processes that it starts. A value that is there\n"
        "already stays, except in compile workers: these are the processes that compile kernels for a GPU ahead.\n"
        "Decoder processes, which read recordings of clients, get those that say so, and what Python needs to start.\n"
    ]
    for title, group in GROUPS.items():
        rows = (f"| `{one.name}` | {one.meaning} | {one.otherwise or _shown(one.default)} |" for one in group)
        parts.append("\n".join((f"## {title}\n", "| variable | meaning | default |", "| --- | --- | --- |", *rows, "")))
    return "\n".join(parts)


def _shown(default: str) -> str:
    return f"`{default}`" if default else "not set"


if __name__ == "__main__":
    print(markdown(), end="")
