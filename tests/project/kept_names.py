"""Finds the names that docs/stability.md promises to keep, where they are written: each name is a line of text.

    python tailrace.Session.save()              a function; a class or an attribute has no brackets
    python tailrace.Session.save(1: step)       its parameter, which may be given by place
    python tailrace.Session.save(pickle=)       one that is given by name, and has a default
    c++ tailrace::Session: void save(uint64_t epoch)
    fortran tailrace_session%wait(2: seconds=)  the same as in Python
    tool extract --output VALUE REQUIRED
    json ls: age_seconds                        a member of an object that `tailrace ls --json` prints

The C interface is not among them: tests/c_api keeps it. Python is parsed, not imported; of the tool, --help and
`config --json` are read. What is written in a way that is not understood here is an Unknown error.
"""

from __future__ import annotations

import ast
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "docs" / "site"))

import cpp_interface  # noqa: E402
import python_reference  # noqa: E402


class Unknown(Exception):
    """Text that is not understood."""


def all_names(project: pathlib.Path, tailrace: str) -> set[str]:
    """The names in the sources of a project, and of a tool that was built from them."""
    return set().union(*(names_of(kind, project, tailrace) for kind in KINDS))


def names_of(kind: str, project: pathlib.Path, tailrace: str) -> set[str]:
    return set(KINDS[kind](project, tailrace))


# ---- Python ----------------------------------------------------------------------------------------------------------

MODULES = ("tailrace", "tailrace.torch", "tailrace.convert")
# Calls of the package return these. Programs use their members, and do not make them.
MADE_BY_CALLS = {"Checkpoint", "Differences", "Epoch", "LazyArray", "Session", "TensorFile"}
WITHOUT_OWN_NAME = {"tailrace._files": ("FilesToSave", "RestoredFiles")}
Function = python_reference.Function


def python_names(root: pathlib.Path) -> Iterator[str]:
    made_by_calls = set(MADE_BY_CALLS)
    for module_name in MODULES:
        module = python_reference.Module(root, module_name)
        yield f"python {module_name}"
        for name in module.offered() or ():
            node, where = python_reference.found(module, name, root)
            full = f"{module_name}.{name}"
            if isinstance(node, ast.ClassDef):
                yield from of_class(full, node, name not in made_by_calls)
                made_by_calls.discard(name)
            elif node is not None:
                yield from of_function(full, node.args)
            else:
                yield f"python {full}"
                yield from (f"python {full} has {word}" for word in words_of_constant(where, name))
    if made_by_calls:
        raise Unknown(f"no classes: {', '.join(sorted(made_by_calls))}")
    for module_name, classes in WITHOUT_OWN_NAME.items():
        own = python_reference.Module(root, module_name).own()
        for name in classes:
            node = own.get(name)
            if not isinstance(node, ast.ClassDef):
                raise Unknown(f"{module_name} has no class {name}")
            yield from of_class(name, node, False)


def of_class(full: str, node: ast.ClassDef, is_made_by_programs: bool) -> Iterator[str]:
    yield f"python {full}"
    bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
    yield from (f"python {full} is a {base}" for base in bases if not base.startswith("_"))
    is_dataclass = any("dataclass" in each for each in python_reference.decorators(node)) or "NamedTuple" in bases
    fields: list[ast.AnnAssign] = []
    made_by = None
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            fields.append(each)
            yield from public(full, ast.unparse(each.target))
        elif isinstance(each, ast.Assign):
            name = ast.unparse(each.targets[0])
            value = f" = {ast.unparse(each.value)}" if "enum.IntEnum" in bases else ""
            yield from (line + value for line in public(full, name))
        elif isinstance(each, Function) and each.name == "__init__":
            made_by = each
            for target in ast.walk(each):
                if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store):
                    yield from public(full, target.attr)
        elif isinstance(each, Function) and (not each.name.startswith("_") or is_for_syntax(each.name)):
            decorators = python_reference.decorators(each)
            if "property" in decorators:
                yield f"python {full}.{each.name}"
            elif not any(decorator.endswith(".setter") for decorator in decorators):
                yield from of_function(f"{full}.{each.name}", each.args, "staticmethod" not in decorators)
    if "NamedTuple" in bases:  # programs take it apart
        names = ", ".join(ast.unparse(field.target) for field in fields)
        yield f"python {full}: {names}"
    elif is_made_by_programs and made_by is not None:
        yield from of_function(full, made_by.args, True)
    elif is_made_by_programs and is_dataclass:
        yield from of_function(full, arguments_of(fields))


def public(full: str, name: str) -> Iterator[str]:
    if not name.startswith("_"):
        yield f"python {full}.{name}"


def is_for_syntax(name: str) -> bool:
    """Methods by which `with`, `for`, `[]`, len() and numpy take an object."""
    return name in ("__array__", "__enter__", "__getitem__", "__iter__", "__len__")


def of_function(full: str, arguments: ast.arguments, is_method: bool = False) -> Iterator[str]:
    yield f"python {full}()"
    by_place = [*arguments.posonlyargs, *arguments.args]
    first_default = len(by_place) - len(arguments.defaults)
    for place, argument in enumerate(by_place):
        if not is_method or place:
            number = place if is_method else place + 1
            yield f"python {full}({number}: {argument.arg}{'=' if place >= first_default else ''})"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield f"python {full}({argument.arg}{'=' if default is not None else ', by name'})"
    if arguments.vararg is not None:
        yield f"python {full}(*{arguments.vararg.arg})"
    if arguments.kwarg is not None:
        yield f"python {full}(**{arguments.kwarg.arg})"


def arguments_of(fields: list[ast.AnnAssign]) -> ast.arguments:
    """What a dataclass takes."""
    words = []
    for field in fields:
        value = ast.unparse(field.value) if field.value is not None else ""
        if "KW_ONLY" in ast.unparse(field.annotation):
            words.append("*")
        elif "init=False" not in value:
            words.append(ast.unparse(field.target) + ("=0" if value else ""))
    return ast.parse(f"lambda {', '.join(words)}: 0", mode="eval").body.args  # type: ignore[attr-defined,no-any-return]


def words_of_constant(where: python_reference.Module, name: str) -> Iterator[str]:
    for node in where.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            for each in ast.walk(node.value):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value


# ---- C++ -------------------------------------------------------------------------------------------------------------


def cpp_names(include: pathlib.Path) -> Iterator[str]:
    for header in cpp_interface.HEADERS:
        text = (include / header).read_text(encoding="utf-8")
        yield from of_declarations("tailrace", cpp_interface.read(header, text).declarations)
    # Where the standard library has a span, this is that one.
    text = (include / "tailrace_span.hpp").read_text(encoding="utf-8")
    begin = text.index("class span {")
    end = text.index("\n};\n", begin)
    yield from of_declarations("tailrace", cpp_interface.Reader("span", text[begin:end] + "\n};").declarations())


def of_declarations(scope: str, declarations: Iterable[cpp_interface.Declaration]) -> Iterator[str]:
    for declaration in declarations:
        if declaration.kind in ("class", "struct", "enum-class"):
            name = declaration.text.split(" ")[0]
            yield f"c++ {scope}::{declaration.text}"
            yield from of_declarations(f"{scope}::{name}", declaration.members)
        else:
            text = re.sub(r"\[\[\w+\]\] |^(inline|constexpr) |^~.*", "", without_template(declaration.text))
            if text:
                yield f"c++ {scope}: {text.removesuffix(' = default')}"


def without_template(text: str) -> str:
    """Without `template <...>`, whose conditions are ours."""
    if not text.startswith("template <"):
        return text
    depth = 0
    for at, sign in enumerate(text):
        depth += {"<": 1, ">": -1}.get(sign, 0)
        if sign == ">" and not depth:
            return text[at + 1 :].strip()
    raise Unknown(f"no end of the template: {text}")


# ---- Fortran ---------------------------------------------------------------------------------------------------------


def fortran_names(text: str) -> Iterator[str]:
    """The public names of the module, whichever of them a compiler's MPI allows (#if is passed over)."""
    lines = re.sub(r"&\s*\n\s*&?", "", re.sub(r"[ \t]*!.*|^#.*", "", text, flags=re.M)).splitlines()
    procedures = fortran_procedures(lines)
    yield "fortran tailrace"
    type_name = ""
    is_hidden = False  # a type's components, and then its procedures
    for line in map(str.strip, lines):
        parameter = re.match(r"integer, parameter, public :: (\w+ = \w+)$", line)
        type_ = re.match(r"type, public :: (\w+)$", line)
        procedure = re.match(r"(generic|procedure) :: (\w+)(?: => (.*))?$", line)
        component = re.match(r"[^!]*? :: (.*)$", line)
        if parameter is not None:
            yield f"fortran {parameter[1]}"
        elif type_ is not None:
            type_name, is_hidden = type_[1], False
            yield f"fortran {type_name}"
        elif line == "end type":
            type_name = ""
        elif line.startswith("public ::"):
            for name in line.partition("::")[2].split(","):
                yield from of_procedure(name.strip(), [name.strip()], procedures, 0)
        elif not type_name or line in ("", "contains"):
            pass
        elif line == "private":
            is_hidden = True
        elif procedure is not None:
            specific = (procedure[3] or procedure[2]).split(", ")
            yield from of_procedure(f"{type_name}%{procedure[2]}", specific, procedures, 1)
        elif line.startswith(("procedure, private", "final ")) or (component is not None and is_hidden):
            pass
        elif component is not None:
            for name in component[1].split(", "):
                yield f"fortran {type_name}%{name.partition(' = ')[0]}"
        else:
            raise Unknown(f"in the type {type_name}: {line}")


def of_procedure(
    name: str, specific: list[str], procedures: dict[str, list[tuple[str, bool]]], skipped: int
) -> Iterator[str]:
    yield f"fortran {name}()"
    for each in specific:
        if each not in procedures:
            raise Unknown(f"no procedure {each} for {name}")
        for place, (argument, is_optional) in enumerate(procedures[each][skipped:], 1):
            yield f"fortran {name}({place}: {argument}{'=' if is_optional else ''})"


def fortran_procedures(lines: list[str]) -> dict[str, list[tuple[str, bool]]]:
    """The arguments of each procedure, and whether they are optional."""
    found: dict[str, list[tuple[str, bool]]] = {}
    current = ""
    for line in map(str.strip, lines):
        begin = re.match(r"(?!end )[\w() ]*\b(?:subroutine|function) (\w+)\(([^)]*)\)", line)
        optional = re.match(r".*, optional :: (.*)$", line)
        if begin is not None:
            current = begin[1]
            found[current] = [(name.strip(), False) for name in begin[2].split(",") if name.strip()]
        elif optional is not None and current:
            names = re.findall(r"\w+(?=\(|,|$)", optional[1])
            found[current] = [(name, is_optional or name in names) for name, is_optional in found[current]]
    return found


# ---- CMake and pkg-config --------------------------------------------------------------------------------------------


def build_names(cmake: pathlib.Path) -> Iterator[str]:
    config = (cmake / "tailraceConfig.cmake.in").read_text(encoding="utf-8")
    install = (cmake / "TailraceInstall.cmake").read_text(encoding="utf-8")
    for component in re.findall(r'"(\w+)" IN_LIST tailrace_components', config):
        yield f"cmake find_package(tailrace COMPONENTS {component})"
    for package in re.findall(r"configure_package_config_file\(cmake/(\w+)Config\.cmake\.in", install):
        yield f"cmake find_package({package})"
    exported = dict(re.findall(r"set_target_properties\((\w+) PROPERTIES\s+EXPORT_NAME (\w+)", install))
    for targets in re.findall(r"install\(TARGETS ([^)]*?) EXPORT tailrace", install):
        for target in words_of(targets, install):
            yield f"cmake tailrace::{exported.get(target, target)}"
    for name in words_of("${tailrace_pkg_config}", install):
        yield f"pkg-config {name}"
    for header in words_of("${tailrace_headers}", install):
        yield f"header {header.removeprefix('include/')}"


def words_of(text: str, script: str) -> Iterator[str]:
    """The words, and in place of a variable all that set() and list(APPEND) ever put into it."""
    for word in text.split():
        variable = re.fullmatch(r"\$\{(\w+)\}", word)
        if variable is None:
            yield word
            continue
        values = re.findall(rf"(?:set\(|list\(APPEND ){variable[1]}\s([^)]*)\)", script)
        if not values:
            raise Unknown(f"nothing sets {word}")
        for value in values:
            yield from words_of(value, script)


# ---- settings and the tool -------------------------------------------------------------------------------------------


def setting_names(tailrace: str) -> Iterator[str]:
    for key in json.loads(said_by(tailrace, "config", "--json"))["keys"]:
        yield f"setting {key['name']} ({key['environment']})"
        yield from (f"setting {key['name']}: {value}" for value in re.split(r" \| |/", key["type"]))


def said_by(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


def tool_names(project: pathlib.Path, tailrace: str) -> Iterator[str]:
    yield from of_help("tool", said_by(tailrace, "--help"))
    for number, name in re.findall(r"^    exit_(\w+) = (\d+),", (project / "tools" / "command.h").read_text(), re.M):
        yield f"tool exit status {name}: {number}"
    for command in section(said_by(tailrace, "--help"), "Subcommands"):
        name = command.split()[0]
        yield f"tool {name}"
        if (program := python_program(project, name)) is not None:
            yield from of_parser(f"tool {name}", ast.parse(program.read_text(encoding="utf-8")))
        else:
            yield from of_help(f"tool {name}", said_by(tailrace, name, "--help"))


def section(text: str, heading: str) -> list[str]:
    found = re.search(rf"^{heading}:\n((?:  .*\n)*)", text, re.M)
    return re.findall(r"^  (\S.*)$", found[1], re.M) if found is not None else []


def of_help(command: str, text: str) -> Iterator[str]:
    """Of a command in C++: `--rank UINT=1 ...  what it means`."""
    for kind in ("Positionals", "Options"):
        for place, line in enumerate(section(text, kind), 1):
            head = re.split(r"\s{2,}", line)[0].split()
            value = " VALUE" if re.match(r"(?!REQUIRED)[A-Z]{2}", " ".join(head[1:2])) else ""
            required = " REQUIRED" if "REQUIRED" in head else ""
            if kind == "Positionals":
                yield f"{command} {place}: {head[0]}{required}"
            else:
                yield from (f"{command} {name}{value}{required}" for name in head[0].split(","))
            for choices in re.findall(r"^\w+:\{([^}]*)\}", " ".join(head[1:])):
                yield from (f"{command} {head[0]}: {choice}" for choice in choices.split(","))


def python_program(project: pathlib.Path, command: str) -> pathlib.Path | None:
    """Where the options of a command in Python stand. convert is part of the package."""
    for path in (project / "python/tailrace" / command / "__main__.py", project / "tools" / command / "__main__.py"):
        if path.exists():
            return path
    return None


def of_parser(command: str, program: ast.Module) -> Iterator[str]:
    """Of a command in Python: the calls of add_argument, which `add` may stand for."""
    yield from (f"{command} {name}" for name in ("-h", "--help"))
    place = 0
    calls = [node for node in ast.walk(program) if isinstance(node, ast.Call)]
    for call in calls:
        if ast.unparse(call.func) not in ("parser.add_argument", "add"):
            continue
        names = [ast.literal_eval(name) for name in call.args]
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if options.get("help") == "argparse.SUPPRESS" and names[0].startswith("-"):
            continue  # for the command itself
        choices = re.findall(r"'(\w+)'", options.get("choices", ""))
        if names[0].startswith("-"):
            value = "" if "store_true" in options.get("action", "") else " VALUE"
            required = " REQUIRED" if options.get("required") == "True" else ""
            yield from (f"{command} {name}{value}{required}" for name in names)
        else:
            place += 1
            yield f"{command} {place}: {ast.literal_eval(options.get('metavar', repr(names[0])))}"
        yield from (f"{command} {names[-1]}: {choice}" for choice in choices)


# ---- what --json prints ----------------------------------------------------------------------------------------------

# Whose objects these files write; a file command_NAME.cc writes those of NAME.
WRITERS = {
    "beside_notes.cc": ["ls"],
    "forget.cc": ["drain"],
    "halt_note.cc": ["halt", "ls"],
    "kept_sets.cc": ["ls"],
    "main.cc": ["any command that fails"],
    "profile/__main__.py": ["profile"],
    "profile/results.py": ["profile"],
    "profile/tally.py": ["profile"],
}
READERS = {"node_local.cc", "text.cc"}  # read JSON, or print what others have made
NOT_PROMISED = {"command_bench.cc"}  # the JSON of benchmarks


def json_names(tools: pathlib.Path) -> Iterator[str]:
    for path in sorted([*tools.glob("*.cc"), *(tools / "profile").glob("*.py")]):
        name = path.relative_to(tools).as_posix()
        text = path.read_text(encoding="utf-8")
        own = re.fullmatch(r"command_(\w+)\.cc", name)
        commands = WRITERS.get(name, [own[1]] if own is not None else [])
        if name in NOT_PROMISED or name in READERS or (not commands and path.suffix == ".py"):
            continue
        if not commands and re.search(r"nlohmann::\w*json\b(?!_fwd)", text):
            raise Unknown(f"{name} makes JSON: whose?")
        members = python_members(text) if path.suffix == ".py" else cpp_members(text)
        yield from (f"json {command}: {member}" for command in commands for member in members)


def cpp_members(text: str) -> set[str]:
    """Of `{"member", value}` and `object["member"] = value`. A list of three or more texts is no object."""
    listed = re.findall(r'\{"([a-z_]+)",\s(?!"[^"]*",)', text)
    return {*listed, *re.findall(r'\["([a-z_]+)"\] (?:= )', text), *re.findall(r'\["([a-z_]+)"\]\.push_back', text)}


def python_members(text: str) -> set[str]:
    """Of dictionaries, and the texts that a list of COUNTS or a loop takes for members."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        texts: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            texts = list(node.keys)
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            texts = list(node.iter.elts)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COUNTS":
            texts = list(node.value.elts) if isinstance(node.value, ast.Tuple) else []
        members = {each.value for each in texts if isinstance(each, ast.Constant) and isinstance(each.value, str)}
        found |= {member for member in members if re.fullmatch(r"[a-z_]+", member)}
    return found


# By the word that a line begins with; those of "cmake" also begin with "pkg-config" and "header".
KINDS: dict[str, Callable[[pathlib.Path, str], Iterable[str]]] = {
    "python": lambda project, _: python_names(project / "python"),
    "c++": lambda project, _: cpp_names(project / "include"),
    "fortran": lambda project, _: fortran_names((project / "fortran" / "tailrace.F90").read_text(encoding="utf-8")),
    "cmake": lambda project, _: build_names(project / "cmake"),
    "setting": lambda _, tailrace: setting_names(tailrace),
    "tool": tool_names,
    "json": lambda project, _: json_names(project / "tools"),
}
