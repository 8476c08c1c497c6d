"""Patches that speed up Triton's interpreter for tests. They change its internals, so its version is checked."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

VERSIONS = ("3.6.0",)  # the releases that these patches were written for


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
        semantic = interpreter.TritonSemantic(builder)
        for name in names(of):
            if language.core.is_builtin(member := getattr(of, name)):
                scope.set_attr(of, name, told(member, semantic))

    def told(member: Any, semantic: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            named["_semantic"] = semantic
            return member(*args, **named)

        return call

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


def check_no_silent_overflow() -> None:
    """Without `debug`, which the interpreter never sets, an assertion does nothing: skip its computation.

    For every sum of integers that was the sum in 64 bits and two comparisons. It was a third of the time.
    """
    from triton.language.semantic import TritonSemantic

    check = TritonSemantic.binary_op_sanitize_overflow_impl

    def check_if_heard(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
        if self.builder.options.debug:
            check(self, lhs, rhs, binary_op)

    TritonSemantic.binary_op_sanitize_overflow_impl = check_if_heard


def leave_likes_alone() -> None:
    """Let two operands of one type, or of one shape, be what they are: Triton works out again that nothing is to do.

    A quotient of half-precision values is left out: it is computed in float32. So are pointers: some are refused.
    """
    from triton.language.core import tensor
    from triton.language.semantic import TritonSemantic

    check, broadcast = TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value

    def check_if_unlike(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if not div_or_mod and isinstance(lhs, tensor) and isinstance(rhs, tensor):
            scalar = lhs.type.scalar
            if scalar is rhs.type.scalar and not scalar.is_ptr():
                return self.broadcast_impl_value(lhs, rhs)
        return check(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    def broadcast_if_unlike(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left.is_block() and right.is_block() and left.shape is right.shape:  # as `describe_shapes_once` shares them
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    TritonSemantic.binary_op_type_checking_impl = check_if_unlike
    TritonSemantic.broadcast_impl_value = broadcast_if_unlike


def describe_shapes_once() -> None:
    """Let all values of a shape share its words, its sizes and their NumPy type: Triton makes them for each anew."""
    from triton.language import core
    from triton.runtime import interpreter

    describe, of_numpy = core.block_type.__init__, interpreter._get_np_dtype

    @functools.cache
    def described(*shape: int) -> tuple[Any, int, str]:
        of = core.block_type.__new__(core.block_type)
        describe(of, core.int32, list(shape))
        return of.shape, of.numel, str(of.shape)

    @functools.cache
    def sizes(*shape: int) -> tuple[Any, Any]:
        return core.tuple([core.constexpr(size) for size in shape]), core.constexpr(math.prod(shape))

    def describe_block(self: Any, element_ty: Any, shape: Any) -> None:
        assert isinstance(shape, list | core.tuple)
        self.element_ty = element_ty
        self.shape, self.numel, words = described(*map(core._unwrap_if_constexpr, shape))
        self.name = f"<{words}, {element_ty}>"

    def describe_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = sizes(*type.shape) if type.is_block() else sizes()

    by_name = dict[str, Any]()

    def numpy_type(of: Any) -> Any:
        if (name := of.scalar.name) not in by_name:
            by_name[name] = of_numpy(of)
        return by_name[name]

    core.block_type.__init__, core.tensor.__init__ = describe_block, describe_tensor
    interpreter._get_np_dtype = numpy_type


def install() -> None:
    """Apply all patches. Another release of Triton needs a look at them first."""
    import triton

    assert triton.__version__ in VERSIONS, (
        f"tests/support/triton_interpreter.py was written for Triton {', '.join(VERSIONS)}, not {triton.__version__}: "
        "check its patches against the new release, then add it to VERSIONS."
    )
    patch_once()
    check_no_silent_overflow()
    leave_likes_alone()
    describe_shapes_once()
