# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Completions of kmem's words: completions.py FOLDER writes bash, zsh and fish there.

A file holds all words; no completion starts Python. Other words, as files and programs, are the
shell's own.
"""

import sys
from pathlib import Path

from commands import Command, all_commands, run_command

HEAD = """\
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Written by scripts/completions.py from the commands' help.
"""


def every() -> list[Command]:
    return [*all_commands(), run_command()]


def words_after(command: Command) -> list[str]:
    return [*(word for word, _ in command.commands), *command.option_words()]


# The words before the cursor lead to a command: one word more as long as such a command exists.
BASH = """
_kmem() {
        local word=${COMP_WORDS[COMP_CWORD]} path=kmem place
        COMPREPLY=()
        for ((place = 1; place < COMP_CWORD; place++)); do
                [[ -n ${_kmem_words[$path ${COMP_WORDS[place]}]-} ]] || break
                path+=" ${COMP_WORDS[place]}"
        done
        # Behind `kmem run` the first word that is no option is a program; its own words follow.
        if [[ $path == 'kmem run' || $path == 'kmem record program' ]] &&
                declare -F _command_offset >/dev/null; then
                for (( ; place < COMP_CWORD; place++)); do
                        case ${COMP_WORDS[place]} in
                        --) _command_offset $((place + 1)); return ;;
                        --set | --slabinfo | --attrs | --limit | --out) ((place++)) ;;
                        -*) ;;
                        *) _command_offset "$place"; return ;;
                        esac
                done
        fi
        mapfile -t COMPREPLY < <(compgen -W "${_kmem_words[$path]}" -- "$word")
}
complete -o default -o bashdefault -F _kmem kmem
"""


def bash() -> str:
    rows = [f"        ['{' '.join(one.words)}']='{' '.join(words_after(one))}'" for one in every()]
    return HEAD + "\ndeclare -gA _kmem_words=(\n" + "\n".join(rows) + "\n)\n" + BASH


def quoted(text: str) -> str:
    """Between single quotes, for zsh and fish."""
    return text.replace("\\", "\\\\").replace("'", "\u2019")


def zsh() -> str:
    """A function for compsys, with the first lines of the commands."""
    cases = []
    for one in every():
        rows = [f"'{word}:{quoted(text)}'" for word, text in one.commands]
        rows += [
            f"'{word}:{quoted(text)}'"
            for names, text in one.options
            for word in option_names(names)
        ]
        body = "\n                ".join(rows)
        cases.append(
            f"        '{' '.join(one.words)}')\n"
            f"                rows=(\n                {body}\n                )\n"
            "                ;;"
        )
    known = " ".join(f"'{' '.join(one.words)}'" for one in every())
    return (
        "#compdef kmem\n"
        + HEAD
        + f"""
_kmem() {{
        local -a rows known=({known})
        local at=kmem place=2
        while ((place < CURRENT)) && ((${{known[(Ie)$at ${{words[place]}}]}})); do
                at+=" ${{words[place]}}"
                ((place++))
        done
        case $at in
"""
        + "\n".join(cases)
        + """
        esac
        _describe -o 'kmem' rows
        # `kmem run` and `kmem record program` take a program, most others a file.
        case $at in
        'kmem run' | 'kmem record program') _command_names -e ;;
        esac
        _files
}

_kmem "$@"
"""
    )


def option_names(names: str) -> list[str]:
    return Command([], "", "", options=[(names, "")]).option_words()


def fish() -> str:
    """The condition of a row is the command whose words stand before the cursor."""
    lines = [HEAD]
    known = " ".join(f"'{' '.join(one.words)}'" for one in every())
    lines.append(f"""set -g __kmem_known {known}

function __kmem_at --description 'Whether the words before the cursor lead to this command'
        set -l path
        for word in (commandline -opc)
                set -q path[1]; or set word kmem
                contains -- (string join -- ' ' $path $word) $__kmem_known; or break
                set path $path $word
        end
        test "$path" = "$argv"
end
""")
    for one in every():
        condition = f"complete -c kmem -n '__kmem_at {' '.join(one.words)}'"
        for word, text in one.commands:
            lines.append(f"{condition} -f -a '{word}' -d '{quoted(text)}'")
        for names, text in one.options:
            flags = []
            for word in option_names(names):
                flags.append(f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}")
            takes = " -r" if len(names.split()) > len(option_names(names)) else ""
            lines.append(f"{condition} {' '.join(flags)}{takes} -d '{quoted(text)}'")
    lines.append(
        "complete -c kmem -n '__kmem_at kmem run' -f -a '(__fish_complete_subcommand --fcs-skip=2)'"
    )
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("bash", bash()), ("zsh", zsh()), ("fish", fish())):
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
