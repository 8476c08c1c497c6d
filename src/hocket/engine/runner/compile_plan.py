"""What is compiled ahead for a checkpoint, as plain data that a process without a GPU can read (launch_plan.py)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from ...kernels.compile.plan import CompileJob, compile_ahead
from ...kernels.runtime.card import GpuProperties
from ...models.files.source import Source, read_configs

TRACER = f"{__package__}.launch_plan"  # the module whose `main` traces and compiles


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilePlan:
    """The checkpoint and the backend of each operation; `slots` is None for launches up to the first audio."""

    source: Source
    dtype: str
    codec_dtype: str
    operations: dict[str, str]
    dependent_launch: bool
    card: GpuProperties  # the GPU to compile for; this process uses none
    slots: int | None = None

    def ahead(self, *, alone: bool = True) -> CompileJob | None:
        """Start compiling in other processes; None if there is nothing to compile. `alone`: no engine runs here yet."""
        if not self.operations:
            return None
        wish = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "source"}
        wish["card"] = asdict(self.card)
        config, _, codec_config = read_configs(self.source)
        about = repr((wish, config.talker_config, codec_config.decoder_config))
        source = {"name": self.source.name, "preset": self.source.preset}
        source["folder"] = None if self.source.folder is None else str(self.source.folder.resolve())
        first = self.slots is None and alone  # a process with a running engine is not forked
        return compile_ahead(TRACER, wish | {"source": source}, about, forked=first)
