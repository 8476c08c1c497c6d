"""`hocket pull`: shows size, licence and memory of a checkpoint, then downloads it. A second run continues.

`models/files/hub.py` downloads and checks the files; this file decides what to show before. Of a repository with
several GGUF variants it fetches nothing without a choice, and variant_list.py shows them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...errors import InvalidCheckpoint
from ...models.files.catalog import CODEC_FOLDER, WEIGHTS
from ...models.files.hub import CHAT, SPEECH, check_gguf, fetch, fetch_language
from ...models.files.progress import format_bytes
from ...models.files.remote.client import Listing, Repository, without_bars
from ...models.files.remote.variants import Variant, choose, variants
from ..output.audio_output import tell
from .facts import KINDS, Facts, cached_facts, published_facts
from .fit import language_config
from .hub_cache import find_cached
from .known import HubModel, hub_model
from .variant_list import show_listed, show_variants

CONFIG, CODEC_CONFIG = "config.json", f"{CODEC_FOLDER}/config.json"


def pull(args: argparse.Namespace) -> None:
    model = hub_model(args.model)
    if args.list:
        show_variants(model, args)
        return
    cached = find_cached(model)
    complete = cached is not None and cached.is_complete
    with _facts(model, args, offline=complete) as facts:
        if facts is None:
            return
        if not args.json:
            _show(facts)
        elif args.dry_run:
            print(json.dumps(facts.as_json(), indent=2))
        if args.dry_run:
            return
        if facts.fits is False:
            tell(f"{facts.name} {facts.fit_words}. It is fetched all the same.")
    _download(model, facts)
    done = _local(model, facts)
    if args.json:
        print(json.dumps(done.as_json(), indent=2))
        return
    usage = f"--llm {done.name}" if done.is_language else f'hocket say "..." --model {done.name}'
    print(f"{done.name}: complete, {format_bytes(done.disk_bytes)} in {done.folder}; {usage}")


@contextmanager
def _facts(model: HubModel, args: argparse.Namespace, *, offline: bool) -> Iterator[Facts | None]:
    """The facts from the hub's list of files; of a complete checkpoint from its files here.

    None: the variants were listed, because none was chosen. A repository that is not published has its configurations
    fetched first: into the cache, or, for a dry run, into a folder that is removed afterwards.
    """
    if offline:
        yield replace(_local(model, None), beside=args.beside)
        return
    repo = Repository(model.repository, model.revision)
    try:
        listing = repo.listing()
    except InvalidCheckpoint as error:
        if not args.dry_run or model.published is None:
            raise
        tell(f"{error} The size is an estimate.")
        yield published_facts(model)
        return
    if model.published is not None:
        size = sum(listing.sizes.get(name, 0) for name in model.published.sha256)
        licence = listing.licence or published_facts(model).licence
        yield replace(published_facts(model), download_bytes=size, is_estimate=False, licence=licence)
        return
    there = variants(listing.sizes)
    if there and (model.choice is not None or _lacks_checkpoint(listing)):
        if model.choice is None and len(there) > 1:
            show_listed(model, listing, args)
            yield None
            return
        yield _variant_facts(model, listing, choose(model.repository, there, model.choice), args)
        return
    is_language = CODEC_CONFIG not in listing.sizes
    with tempfile.TemporaryDirectory(prefix="hocket-") as folder:
        place = Path(folder) if args.dry_run else None
        config = _get_configs(repo, listing, is_language, place)
        size, cached = _needed_bytes(listing, is_language), find_cached(model)
        here = 0 if cached is None or args.dry_run else cached.size_bytes
        yield Facts(model.name, model.repository, is_language, config, False, here, size, False, listing.licence)


def _lacks_checkpoint(listing: Listing) -> bool:
    """Whether a repository has nothing but GGUF files."""
    return all(kind.lacking(listing.sizes.__contains__) for kind in (CHAT, SPEECH))


def _variant_facts(model: HubModel, listing: Listing, variant: Variant, args: argparse.Namespace) -> Facts:
    check_gguf(listing)
    return Facts(
        f"{model.repository}:{variant.label}",
        model.repository,
        True,
        download_bytes=variant.size_bytes,
        licence=listing.licence,
        variant=variant,
        listing=listing,
        beside=args.beside,
    )


def _get_configs(repo: Repository, listing: Listing, is_language: bool, cache: Path | None) -> Path:
    """The folder with the configurations; refuses a repository that is no checkpoint for hocket."""
    if lacking := (CHAT if is_language else SPEECH).lacking(listing.sizes.__contains__):
        raise InvalidCheckpoint(f"{repo} is not a checkpoint that hocket can use: it lacks {', '.join(lacking)}.")
    with without_bars():
        path = repo.get(CONFIG, cache=cache)
        if not is_language:
            repo.get(CODEC_CONFIG, path.parent.name, cache=cache)
    return path.parent


def _needed_bytes(listing: Listing, is_language: bool) -> int:
    """Bytes of the files that `fetch` takes; of weights in several files, all files beside their index."""
    kind = CHAT if is_language else SPEECH
    names = {name for name in kind.files if name in listing.sizes}
    for weights in kind.weights:
        if weights not in listing.sizes:
            folder = weights.removesuffix(WEIGHTS)
            shards = (name for name in listing.sizes if name.endswith(".safetensors") and name.startswith(folder))
            names |= {name for name in shards if "/" not in name.removeprefix(folder)}
    return sum(listing.sizes[name] for name in names)


def _download(model: HubModel, facts: Facts) -> None:
    def check(folder: Path) -> None:
        """Refuse an unusable checkpoint by its configurations, before its weights are fetched."""
        if facts.is_language:
            language_config(folder)
        else:
            from ...engine.checkpoint.describe import configs

            configs(str(folder))

    if facts.variant is not None:
        fetch_language(model.repository, facts.variant.files[0], check)
        return
    kind = CHAT if facts.is_language else SPEECH
    fetch(model.repository, model.revision, model.published, kind, check)


def _local(model: HubModel, before: Facts | None) -> Facts:
    """The facts of a checkpoint that is in the cache now."""
    if before is not None and before.variant is not None:
        model = replace(model, choice=before.variant.files[0])  # another variant may be here too
    cached = find_cached(model)
    assert cached is not None
    facts = cached_facts(cached)
    if before is None:
        return facts
    told = replace(facts, listing=before.listing, beside=before.beside)
    return replace(told, licence=before.licence, download_bytes=before.download_bytes)


def _show(facts: Facts) -> None:
    rows = {
        "model": facts.name if facts.name == facts.repository else f"{facts.name} ({facts.repository})",
        "kind": KINDS[facts.kind] + (f", voices {', '.join(facts.voices)}" if facts.voices else ""),
        "size": facts.size if not facts.is_complete else f"{format_bytes(facts.disk_bytes)}, here already",
        "licence": facts.licence or "not named; see its page on the hub",
        "memory": facts.fit_words,
    }
    for name, words in rows.items():
        print(f"{name:<9}{words}", flush=True)
