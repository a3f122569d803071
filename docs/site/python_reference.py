"""Makes the Python reference from the docstrings in python/tailrace: a page for each module that programs import.

The sources are parsed, not imported, so neither the extension nor PyTorch has to be there. What a package's __all__
names is looked up in the module it comes from; a module without __all__ shows its public classes and functions.
"""

from __future__ import annotations

import ast
import pathlib
import re

import words

FOLDER = "reference/python"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef


class Wrong(Exception):
    """A name that the package offers is not found."""


class Module:
    """A module of the package, parsed."""

    def __init__(self, root: pathlib.Path, name: str) -> None:
        self.name = name
        base = root.joinpath(*name.split("."))
        self.is_package = base.is_dir()
        path = base / "__init__.py" if self.is_package else base.with_suffix(".py")
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.split("\n")
        self.tree = ast.parse(self.text)
        self.opening = ast.get_docstring(self.tree) or ""

    def own(self) -> dict[str, Named]:
        return {node.name: node for node in self.tree.body if isinstance(node, Named)}

    def imported(self) -> dict[str, str]:
        """Names, and the modules that they come from."""
        nodes = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.module]
        return {a.asname or a.name: str(node.module) for node in nodes for a in node.names}

    def offered(self) -> list[str] | None:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return [str(name) for name in ast.literal_eval(node.value)]
        return None


def public_modules(root: pathlib.Path) -> list[str]:
    paths = [path.relative_to(root) for path in sorted((root / "tailrace").rglob("*.py"))]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not any(part.startswith("_") for part in name.split("."))]


def pages(root: pathlib.Path) -> dict[str, str]:
    """Paths in the site and texts."""
    names = public_modules(root)
    made = {f"{FOLDER}/{name}.md": text_of(Module(root, name), root) for name in names}
    rows = [f"- [`{name}`]({name}.md): {summary(Module(root, name))}" for name in names]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *names, "```"])
    intro = "[Python](../../docs/python.md) and [PyTorch](../../docs/pytorch.md) show how these are used."
    made[f"{FOLDER}/index.md"] = "\n\n".join(["# Python reference", intro, "\n".join(rows), tree]) + "\n"
    return made


def summary(module: Module) -> str:
    return words.inline(words.first_sentence(module.opening.split("\n\n")[0].split("\n")), words.no_links)


def text_of(module: Module, root: pathlib.Path) -> str:
    out = [f"# {words.escaped(module.name)}", f"```{{py:module}} {module.name}\n```"]
    out.append(words.markdown(module.opening.split("\n"), "python"))
    offered = module.offered()
    names = offered if offered is not None else [name for name in module.own() if not name.startswith("_")]
    for name in names:
        node, where = found(module, name, root)
        if node is None:
            out.append(words.directive("py:data", name, constant(where, name)))
        elif isinstance(node, ast.ClassDef):
            out += [f"## {words.escaped(name)}", of_class(node, where)]
        else:
            out += [f"## {words.escaped(name)}", of_function(node, where, "py:function")]
    return "\n\n".join(out) + "\n"


def found(module: Module, name: str, root: pathlib.Path) -> tuple[Named | None, Module]:
    """The definition of a name, and the module where it stands; no definition if the name is a constant."""
    if name in module.own():
        return module.own()[name], module
    origin = module.imported().get(name) or module.imported().get(name.strip("_"))
    if origin is None or origin == "tailrace._core":
        return None, module
    other = Module(root, origin)
    if name in other.own():
        return other.own()[name], other
    return None, other


def constant(where: Module, name: str) -> str:
    if name == "__version__":
        return "The version of the package, such as `1.0.0`."
    for node in where.tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and name == ast.unparse(target_of(node)):
            comment = comment_above(where, node.lineno)
            return words.markdown(comment, "python")
    raise Wrong(f"{where.name}: {name} is not found")


def target_of(node: ast.Assign | ast.AnnAssign) -> ast.expr:
    return node.target if isinstance(node, ast.AnnAssign) else node.targets[0]


def comment_above(where: Module, line: int) -> list[str]:
    comment: list[str] = []
    while line > 1 and where.lines[line - 2].startswith("# "):
        line -= 1
        comment.insert(0, where.lines[line - 1][2:])
    return comment


def said_by(node: Named) -> str:
    return words.markdown((ast.get_docstring(node) or "").split("\n"), "python", entries=True)


def decorators(node: Named) -> list[str]:
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def of_function(node: Function, where: Module, kind: str) -> str:
    options: list[str] = [name for name in ("staticmethod", "classmethod") if name in decorators(node)]
    if isinstance(node, ast.AsyncFunctionDef):
        options.append("async")
    if kind == "py:method" and "property" in decorators(node):
        options = [f"type: {ast.unparse(node.returns)}"] if node.returns is not None else []
        return words.directive("py:property", node.name, said_by(node), 0, options)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return words.directive(kind, f"{node.name}({arguments(node, kind)}){returns}", said_by(node), 0, options)


def arguments(node: Function, kind: str) -> str:
    text = ast.unparse(node.args)
    if kind == "py:method" and "staticmethod" not in decorators(node):
        text = re.sub(r"^(self|cls)(: \w+)?(, /)?(, |$)", "", text)
    return text.replace("=_ALONE", "=...")


def of_class(node: ast.ClassDef, where: Module) -> str:
    parts = [said_by(node)]
    methods = [each for each in node.body if isinstance(each, Function)]
    dataclass = any("dataclass" in decorator for decorator in decorators(node))
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and dataclass]
    parts += [attribute(each, where) for each in node.body if isinstance(each, (ast.AnnAssign, ast.Assign))]
    parts += [of_function(each, where, "py:method") for each in methods if is_public(each)]
    made_by = next((each for each in methods if each.name == "__init__"), None)
    signature = ""
    if made_by is not None:
        signature = f"({arguments(made_by, 'py:method')})"
    elif dataclass:
        signature = "(" + ", ".join(ast.unparse(each) for each in fields) + ")"
    # What only this package can make has parameters of private types.
    if re.search(r"\b_\w+\.|\b_[A-Z]", signature):
        signature = ""
    if dataclass or any(ast.unparse(base).endswith("Enum") for base in node.bases):
        signature = "" if not dataclass else signature
    return words.directive("py:class", node.name + signature, "\n\n".join(p for p in parts if p), 1)


def is_public(node: Function) -> bool:
    # Setters repeat their property; of the special methods, those with words of their own are shown.
    if any(decorator.endswith(".setter") or decorator.endswith("overload") for decorator in decorators(node)):
        return False
    if node.name.startswith("__"):
        return node.name != "__init__" and ast.get_docstring(node) is not None
    return not node.name.startswith("_")


def attribute(node: ast.AnnAssign | ast.Assign, where: Module) -> str:
    name = ast.unparse(target_of(node))
    if name.startswith("_"):
        return ""
    behind = re.search(r"  # (.*)$", where.lines[node.lineno - 1])
    said = words.inline(behind[1], words.no_links) if behind is not None else ""
    options = [f"type: {ast.unparse(node.annotation)}"] if isinstance(node, ast.AnnAssign) else []
    if node.value is not None and isinstance(node, ast.Assign):
        options.append(f"value: {ast.unparse(node.value)}")
    return words.directive("py:attribute", name, said, 0, options)
