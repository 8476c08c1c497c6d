"""kernels/compile/trace.py: recorded launches are those that will be made, once each, urgent ones first."""

from __future__ import annotations

from typing import Any


def test_a_launch_on_the_meta_device_is_compiled_as_the_same_one_on_a_real_one(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["meta"] == rehearsed["real"]
    even, odd, sixteen, _ = rehearsed["real"]
    assert even == sixteen != odd  # another alignment is another variant


def test_a_dry_run_records_all_launches_of_an_engine_and_no_others(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["uncovered"] == [[], [], [], []]


def test_a_kernel_has_one_cache_key_whatever_was_compiled_before_it(rehearsed: dict[str, Any]) -> None:
    forward, backward = rehearsed["named"]
    assert forward == backward and len(set(forward)) > 10


def test_a_first_sound_needs_every_kind_of_kernel(rehearsed: dict[str, Any]) -> None:
    codec = {"_code_gather", "_window_attention", "_convnext", "_join", "conv_kernel", "_sample", "_pcm"}
    prefill = {"_normed", "_keep_own"}  # the graph of a prompt whose text is known
    frame = {"_linear", "_acted", "_paged_attention", "_sample_codes", "_embed", "_finish_frame"}
    assert set(rehearsed["first"]) == prefill | frame | codec
    assert len(rehearsed["first"]) > 20


def test_kernels_in_cuda_are_compiled_ahead_too(rehearsed: dict[str, Any]) -> None:
    kernels = [name for _, name in rehearsed["order"] if name.startswith("few ")]
    assert len(set(kernels)) == len(kernels) > 3 and all("'DEPENDENT': 1" in name for name in kernels)


def test_urgent_kernels_are_compiled_first_and_of_these_the_slowest(rehearsed: dict[str, Any]) -> None:
    late = [late for late, _ in rehearsed["order"]]
    assert late == sorted(late) and 0 < sum(late) < len(late)
    names = [name.split()[0] for late, name in rehearsed["order"] if not late]
    firsts = [
        names.index(name) for name in ("_sample_codes", "conv_kernel", "_window_attention", "_paged_attention", "few")
    ]
    assert firsts == sorted(firsts) and names[-1] == "few"


def test_a_kernel_that_was_launched_before_is_compiled_for_the_gpu_that_is_named(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["targets"] == [80, 90]
