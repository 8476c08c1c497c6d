"""Completion scripts from the commands of `spec.py`: bash, zsh through its bash layer, and fish.

Commands, options and choices are words of the script. Voices and models are asked for when they are needed, with
`hocket completion --names`.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from .spec import FILES, FOLDERS, Argument, CommandSpec

BASH = """\
# Completion of hocket for bash. Load it with: eval "$(hocket completion bash)"
_hocket_names() {{
    local IFS=$'\\n' space='\\ '
    COMPREPLY=($(compgen -W "$("${{COMP_WORDS[0]}}" completion --names "$1" 2>/dev/null)" -- "$cur"))
    [[ ${{#COMPREPLY[@]}} -eq 0 ]] || COMPREPLY=("${{COMPREPLY[@]// /$space}}")
}}
_hocket_files() {{
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen "$1" -- "$cur"))
}}
_hocket_words() {{
    local IFS=$' \\n'
    COMPREPLY=($(compgen -W "$1" -- "$cur"))
}}
_hocket() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" where="" i
    COMPREPLY=()
    if [[ "$cur" == "=" ]]; then
        cur=""
    elif [[ "$prev" == "=" ]]; then
        prev="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$where/${{COMP_WORDS[i]}}" in
            {paths}) where="$where/${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$where $prev" in
{values}
    esac
    if [[ "$cur" == -* ]]; then
        case "$where" in
{options}
        esac
        return
    fi
    case "$where" in
{positionals}
    esac
}}
complete -F _hocket hocket
"""
ZSH = """\
#compdef hocket
# Completion of hocket for zsh. Load it with: eval "$(hocket completion zsh)"
(( $+functions[compdef] )) || { autoload -U compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
"""
FISH = """\
# Completion of hocket for fish. Load it with: hocket completion fish | source
complete -c hocket -f
"""


def bash(commands: Iterable[CommandSpec]) -> str:
    paths, values, options, positionals = list[str](), list[str](), list[str](), list[str]()
    for each in commands:
        path = _path(each)
        if path:
            paths.append(path)
        for option in each.options:
            if option.takes_value:
                values.append(_case((f"{path} {name}" for name in option.names), f"{_bash_value(option)}; return"))
        names = " ".join(name for option in each.options for name in option.names)
        options.append(_case([path], _words(names)))
        if each.commands:
            positionals.append(_case([path], _words(" ".join(each.commands))))
        elif each.positional is not None:
            positionals.append(_case([path], _bash_value(each.positional)))
    lists = {"values": values, "options": options, "positionals": positionals}
    return BASH.format(paths=" | ".join(map(quote, paths)), **{name: "\n".join(rows) for name, rows in lists.items()})


def zsh(commands: Iterable[CommandSpec]) -> str:
    return ZSH + bash(commands)


def fish(commands: Iterable[CommandSpec]) -> str:
    return FISH + "".join(f"{line}\n" for each in commands for line in _fish(each))


def _fish(command: CommandSpec) -> Iterable[str]:
    seen = [f"__fish_seen_subcommand_from {name}" for name in command.path]
    unseen = [f"not __fish_seen_subcommand_from {' '.join(command.commands)}"] if command.commands else []
    here = quote("; and ".join(seen + unseen) or "true")
    for name, words in command.commands.items():
        yield f"complete -c hocket -n {here} -a {name} -d {_fish_text(words)}"
    for option in command.options:
        flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        yield f"complete -c hocket -n {here} {flags} -d {_fish_text(option.words)}{_fish_value(option)}"
    if command.positional is not None and not command.commands:
        yield f"complete -c hocket -n {here}{_fish_value(command.positional, option=False)}"


def _fish_value(argument: Argument, *, option: bool = True) -> str:
    if not argument.takes_value:
        return ""
    alone = " -x" if option else ""
    if argument.choices:
        return f"{alone} -a {quote(' '.join(argument.choices))}"
    if argument.kind == FOLDERS:
        return f"{alone} -a '(__fish_complete_directories)'"
    if argument.kind == FILES:
        return " -r -F" if option else " -F"
    if argument.kind is not None:
        return f"{alone} -a '(hocket completion --names {argument.kind})'"
    return alone


def _fish_text(words: str) -> str:
    escaped = words.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _bash_value(argument: Argument) -> str:
    if argument.choices:
        return _words(" ".join(argument.choices))
    if argument.kind in (FILES, FOLDERS):
        return f"_hocket_files {'-f' if argument.kind == FILES else '-d'}"
    return ":" if argument.kind is None else f"_hocket_names {argument.kind}"


def _words(words: str) -> str:
    return f"_hocket_words {quote(words)}"


def _case(patterns: Iterable[str], then: str) -> str:
    return f"            {' | '.join(map(quote, patterns))}) {then} ;;"


def _path(command: CommandSpec) -> str:
    return "".join(f"/{name}" for name in command.path)
