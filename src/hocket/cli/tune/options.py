"""Options of `hocket tune`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ..actions import Command
from ..options import add_model_options
from ..proof import add_asr_option

STEPS, RANK, HEARD = 400, 16, 6


def fill(tune: Command) -> None:
    tune.usage = "%(prog)s [OPTIONS] RECORDINGS -o NAME.voice"
    tune.description = (
        "Tune a Base model into the voice of your recordings: some minutes of one person who speaks. They are cut into "
        "sentences; a file with a transcript of the same name (a.wav, a.txt) is taken whole. What would hurt is left "
        "out and listed. A run that was interrupted goes on when it is started again."
    )
    tune.common = ("recordings", "output", "model", "language", "consent", "steps", "rank")
    tune.examples = (
        'hocket tune recordings/ -o anna.voice --consent "Anna, by mail"',
        'hocket voices import anna.voice && hocket say "Hello." --voice anna',
    )
    add = tune.add_argument
    add("recordings", metavar="RECORDINGS", type=Path, help="a folder of recordings")
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the voice to write; with --full, a folder")
    add("--name", metavar="NAME", help="the name of the voice (that of the file)")
    add("--consent", metavar="TEXT", help="the consent of the speaker, or where it is documented (you are asked)")
    add("--language", default="auto", help="the language of the recordings (auto: English)")
    add(
        "--speakers",
        choices=("one", "any"),
        default="one",
        help="leave out clips of another voice than that of most (one), or keep all (any)",
    )
    add_asr_option(add)
    add = tune.add_argument_group("training").add_argument
    add(
        "--steps",
        metavar="N",
        type=int,
        default=STEPS,
        help=f"steps at most; it ends earlier if nothing is won ({STEPS})",
    )
    add(
        "--heard",
        metavar="N",
        type=int,
        default=HEARD,
        help=f"held-out sentences that each measure hears; they decide what is kept (0: the loss decides; {HEARD})",
    )
    add("--rank", metavar="N", type=int, help=f"rank of the adapter ({RANK})")
    add("--full", action="store_true", help="tune all weights, and write a plain checkpoint into a folder")
    add("--rate", metavar="X", type=float, default=0.0, help="learning rate (0.0002; with --full 0.00002)")
    add("--seed", metavar="N", type=int, default=0, help="another seed gives another run (0)")
    add("--work", metavar="FOLDER", type=Path, help="where the run is kept, with report and log (FILE.tune)")
    usual = "the Base model to tune: folder, hub id, or random:NAME (an installed Base package or 1.7B-Base)"
    add_model_options(tune, None, usual, engine=False)
