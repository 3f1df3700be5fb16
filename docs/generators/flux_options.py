"""What becomes of Flux's options, for docs/reference."""

from __future__ import annotations

from generators.markdown import cell


def render() -> str:
    """Each option of Flux's submission commands, and what becomes of it."""
    from rainbow.scripts.flux import OPTIONS

    lines = [
        "# Options of Flux",
        "",
        "What becomes of the options of `flux submit`, `flux run` and `flux batch`: in a line `#flux:` of a script",
        "(those of `flux batch`), or in a jobspec that `flux submit --dry-run` printed and `rainbow submit --jobspec`",
        "takes. `kept` options are in the jobspec that the cluster's Flux gets, where the last column says.",
        "",
        "| option | of | | where, or why not |",
        "|---|---|---|---|",
    ]
    for option in OPTIONS:
        flags = ", ".join(f"`{flag}`" for flag in option.flags)
        where = f"`{option.where}`" if option.fate == "kept" and " " not in option.where else option.where
        lines.append(f"| {flags} | {option.programs.replace(' ', ', ')} | {option.fate} | {cell(where)} |")
    return "\n".join(lines) + "\n"
