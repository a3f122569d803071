"""Makes Markdown of the plain words of comments and docstrings.

Input: lines of text as this project writes them: paragraphs; examples, indented by four or more; "name: what it is"
with further lines indented; lists whose items begin with "- ". Output: Markdown that shows the same text. Names that
have an entry of their own in the reference become links to it, and so do pages of docs/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Linker = Callable[[str], str | None]  # from a name to the Markdown of a link, if the name has an entry
ENTRY = re.compile(r"(\w[\w.]*(?:, \w[\w.]*)*): (?=\S)")
PAGE = re.compile(r"docs/[\w-]+\.md")


def no_links(_: str) -> None:
    return None


def markdown(lines: Iterable[str], language: str, link: Linker = no_links, entries: bool = False) -> str:
    """`language` is the one of examples. With `entries`, "name: words" is an entry of a list."""
    out: list[str] = []
    part: list[str] = []
    in_entry = False
    for line in [*lines, ""]:
        text = line.strip()
        indented = len(line) - len(line.lstrip()) if text else 0
        opens = re.match(r"- ", text) if indented < 4 else None
        if not text:
            in_entry = False
            end(out, part)
        elif opens is not None or (entries and not indented and ENTRY.match(text)):
            end(out, part)
            in_entry = True
            part = [item(text, link)]
            out.append("\n".join(part))
            part = []
        elif in_entry and indented:
            out[-1] += "\n  " + inline(text, link)
        elif indented >= 4 and not part:
            code(out, line, language)
        else:
            in_entry = False
            part.append(inline(text, link))
    return "\n\n".join(joined(out))


def end(out: list[str], part: list[str]) -> None:
    if part:
        out.append("\n".join(part))
        part.clear()
    elif out and out[-1].startswith("```"):
        out[-1] = out[-1][:-4] + "\n\n```"  # a blank line of an example, or the end of it


def code(out: list[str], line: str, language: str) -> None:
    if not (out and out[-1].startswith("```")):
        out.append(f"```{language}\n```")
    out[-1] = out[-1][:-3] + line[4:] + "\n```"


def item(text: str, link: Linker) -> str:
    entry = ENTRY.match(text)
    if entry is not None:
        return f"- **{escaped(entry[1])}**: {inline(text[entry.end() :], link)}"
    return "- " + inline(text.removeprefix("- "), link)


def joined(out: list[str]) -> list[str]:
    """Items of a list stand together; examples end without blank lines."""
    found: list[str] = []
    for each in out:
        text = re.sub(r"\n+```$", "\n```", each)
        if found and text.startswith("- ") and found[-1].startswith("- "):
            found[-1] += "\n" + text
        else:
            found.append(text)
    return found


def inline(text: str, link: Linker) -> str:
    """One line: what is in backticks stays, the rest is escaped, names with an entry become links."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else linked(piece, link) for piece in pieces)


def linked(text: str, link: Linker) -> str:
    out = ""
    at = 0
    for match in re.finditer(r"docs/[\w-]+\.md|[A-Za-z_][\w.]*\w", text):
        found = f"[{match[0]}](/{match[0]})" if PAGE.fullmatch(match[0]) else link(match[0])
        if found is not None:
            out += escaped(text[at : match.start()]) + found
            at = match.end()
    return out + escaped(text[at:])


def escaped(text: str) -> str:
    return re.sub(r"([\\`*_<>\[\]{}$|#~])", r"\\\1", text)


def first_sentence(lines: Iterable[str]) -> str:
    text = " ".join(" ".join(lines).split())
    return re.split(r"(?<=[.!?])(?<!\.\.\.) (?=[A-Z`*\"])", text)[0]


def directive(name: str, argument: str, body: str, depth: int = 0, options: Iterable[str] = ()) -> str:
    """A directive of MyST; `depth` is how many levels of others its body holds."""
    fence = ":" * (3 + depth)
    head = "".join(f":{option}\n" if ": " in option else f":{option}:\n" for option in options)
    inside = f"\n{body}\n" if body else ""
    return f"{fence}{{{name}}} {' '.join(argument.split())}\n{head}{inside}{fence}"
