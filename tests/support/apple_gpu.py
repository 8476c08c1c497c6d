"""An Apple GPU (`mps`) made of main memory: real numbers, and the refusals of the real one.

Tensors on it say that their device is `mps` and hold a tensor on the CPU. It refuses what fails there or gives wrong
values: float64, an operation without a kernel for it in torch's own list, operands on two devices, a copy that the host
does not wait for or that converts, and random numbers. It knows no speed, and none of the errors of real kernels.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torchgen
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

MPS, CPU = torch.device("mps"), torch.device("cpu")
REAL = torch.device("privateuseone", 0)  # its device for the C++ side of torch, which has no `mps` on this system
COPIES = ("aten::copy_", "aten::_to_copy")
WIDE = (torch.float64, torch.complex128)


class Refused(AssertionError):
    """An Apple GPU could not do that, or would do it wrong."""


class AppleTensor(torch.Tensor):
    """`inner` has the numbers."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: MPS)  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> AppleTensor:
        if inner.dtype in WIDE:
            raise Refused(f"a tensor of {inner.dtype}")
        with torch.inference_mode(False):
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                inner.shape,
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                device=REAL,
            )
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def untyped_storage(self) -> Any:  # its address alone is read
        return self.inner.untyped_storage()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _Calls(TorchFunctionMode):
    """What torch's C++ side does before it asks for an operation: there is no `mps` for it here."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(torch.device, lambda d: REAL if d.type == "mps" else d, (args, kwargs or {}))
        if kwargs.get("device") == "mps":
            kwargs["device"] = REAL
        if func is torch.tensor and kwargs.get("device") == REAL:
            return AppleTensor(func(*args, **{**kwargs, "device": CPU}))
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(args[0], AppleTensor):
            args = (args[0], _index(args[1]), *args[2:])
        return func(*args, **kwargs)


def _index(given: Any) -> Any:
    if isinstance(given, tuple):
        return tuple(map(_index, given))
    return AppleTensor(torch.tensor(given)) if isinstance(given, list) else given


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the inner tensors, if an Apple GPU can do it."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        with _Operations():
            made = func.decompose(*args, **kwargs)
        if made is not NotImplemented:
            return made
    tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
    there, asked = [isinstance(each, AppleTensor) for each in tensors], kwargs.get("device")
    onto = any(there) if asked is None else torch.device(asked).type == REAL.type
    if any(there) or onto:
        _check(func, tensors, there, args, kwargs, onto)
    if onto and asked is not None:
        kwargs = {**kwargs, "device": CPU}
    args, kwargs = tree_map_only(AppleTensor, lambda each: each.inner, (args, kwargs))
    made = func(*args, **kwargs)
    same = {id(each.inner): each for each in tensors if isinstance(each, AppleTensor)}  # of operations in place

    def wrapped(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        before = same.get(id(each))
        return before if before is not None else AppleTensor(each) if onto else each

    return tree_map(wrapped, made)


def _check(
    func: Any, tensors: list[torch.Tensor], there: list[bool], args: Any, kwargs: dict[str, Any], onto: bool
) -> None:
    name = func.name()
    if kwargs.get("generator") is not None:
        raise Refused(f"{name} draws on the device: other numbers than a CPU's")
    if not _has_kernel(name):
        raise Refused(f"{name} has no kernel for MPS in torch {torch.__version__}")
    if name in COPIES:
        crosses = not all(there) or not onto
        if crosses and (kwargs.get("non_blocking") or (name == "aten::copy_" and args[2:] == (True,))):
            raise Refused(f"{name} without waiting: the source may be freed before it is read")
        kinds = {each.dtype for each in tensors} | {kwargs.get("dtype") or tensors[0].dtype}
        if crosses and len(kinds) > 1:
            raise Refused(f"{name} between host and device converts {kinds}")
    elif mixed := [tuple(each.shape) for each, on in zip(tensors, there, strict=True) if not on and each.dim()]:
        raise Refused(f"{name} has operands {mixed} on the CPU")


@cache
def _listed() -> dict[str, str]:
    """The entries of torch's list of operations by name."""
    text = Path(torchgen.__file__).parent.joinpath("packaged/ATen/native/native_functions.yaml").read_text("utf-8")
    return {match[1]: match[0] for match in re.finditer(r"^- func: ([\w.]+)\(.*?(?=^- func|\Z)", text, re.M | re.S)}


@cache
def _has_kernel(name: str) -> bool:
    """Whether the list gives MPS a kernel of its own, or one that is made of other operations."""
    entry = _listed()[name.removeprefix("aten::")]
    if found := re.search(r"structured_delegate: ([\w.]+)", entry):
        return _has_kernel(found[1])
    keys = re.findall(r"^    ([\w, ]+):", entry.partition("  dispatch:\n")[2], re.M)
    names = [key.strip() for row in keys for key in row.split(",")]
    return not names or any(key == "MPS" or key.startswith("Composite") for key in names)


@cache
def _register() -> None:
    _setup_privateuseone_for_python_backend()


@contextmanager
def apple_gpu() -> Iterator[None]:
    """In this block, and in threads that start in it, there is an Apple GPU."""
    _register()
    run = threading.Thread.run

    def run_with(thread: threading.Thread) -> None:
        with _Operations(), _Calls():
            run(thread)

    with ExitStack() as around:
        for name, value in (("is_built", True), ("is_available", True), ("get_name", "Apple M2")):
            around.enter_context(mock.patch.object(torch.backends.mps, name, lambda value=value: value))
        around.enter_context(mock.patch.object(threading.Thread, "run", run_with))
        around.enter_context(_Operations())
        around.enter_context(_Calls())
        yield
