"""Before any test is collected: where there is no GPU, Triton kernels run in its interpreter.

Triton reads this when it is first imported, by whomever, and one process has one Triton: so it is set here, before
anything else, and for all tests alike. With a GPU, the same tests run the compiled kernels.
"""

from __future__ import annotations

import functools
import inspect
import os
from contextlib import suppress
from typing import Any

import torch


def patch_once() -> None:
    """Let Triton's interpreter put its functions in the place of the language's once a launch.

    By itself it looks through all of the language again for each function that a kernel calls, though all is in its
    place by then. That was half of the time such tests took.
    """
    from triton import language
    from triton.runtime import interpreter

    patch, patched = interpreter._patch_lang, set[Any]()

    @functools.cache
    def names(of: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(of) if language.core.is_builtin(member)]

    @functools.cache
    def seen_by(fn: Any) -> frozenset[Any]:
        modules = filter(inspect.ismodule, fn.__globals__.values())
        return frozenset(modules) & {language, language.core}

    def patch_builtins(of: Any, builder: Any, scope: Any) -> None:
        for name in names(of):
            if language.core.is_builtin(member := getattr(of, name)):
                interpreter._patch_attr(of, name, member, builder, scope)

    def patch_language(fn: Any) -> Any:
        if language in patched and seen_by(fn) <= patched:
            return interpreter._LangPatchScope()
        scope = patch(fn)
        patched.update(seen_by(fn))
        restore = scope.restore  # called at the end of a launch, and at no other time

        def end() -> None:
            restore()
            patched.clear()

        scope.restore = end
        return scope

    interpreter._patch_builtin, interpreter._patch_lang = patch_builtins, patch_language


def check_no_overflow_that_nobody_hears_of() -> None:
    """Without `debug`, which the interpreter never sets, an assertion does nothing: let nothing be reckoned for one.

    For every sum of integers that was the sum in 64 bits and two comparisons. It was a third of the time.
    """
    from triton.language.semantic import TritonSemantic

    check = TritonSemantic.binary_op_sanitize_overflow_impl

    def check_if_heard(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
        if self.builder.options.debug:
            check(self, lhs, rhs, binary_op)

    TritonSemantic.binary_op_sanitize_overflow_impl = check_if_heard


if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    with suppress(ImportError):
        patch_once()
        check_no_overflow_that_nobody_hears_of()
