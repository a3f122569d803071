#!/usr/bin/env python3
"""Packages say what the project says: its version, its dependencies, and the symbols of its libraries. The page of
dependencies names what the Python package plugs into.

Input: debian/, packaging/, docs/dependencies.md, and the files that they are compared with. Each check is also run on a
copy in which one file has been changed, and has to complain.
"""

from __future__ import annotations

import fnmatch
import pathlib
import re
import shutil
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]

# Where the version stands: the file, and a pattern whose groups are the version.
VERSIONS = {
    "CMakeLists.txt": r"^project\(tailrace VERSION (\S+) ",
    "pyproject.toml": r'^version = "(.+)"$',
    "python/tailrace/_core.pyi": r"^version: str = '(.+)'$",
    "include/tailrace.h": r"^#define TAILRACE_VERSION_MAJOR (\d+)\n#define TAILRACE_VERSION_MINOR (\d+)\n"
    r"#define TAILRACE_VERSION_PATCH (\d+)$",
    "CHANGELOG.md": r"^## (\S+) - ",  # the newest comes first
    "debian/changelog": r"\Atailrace \((.+)-[^-]+\) ",
    "packaging/spack/package.py": r'^    version\("(.+?)"',
    "packaging/conda/recipe.yaml": r'^  version: "(.+)"$',
}

# What scripts/packages.txt names for `build`, by its names in Spack and conda-forge. Debian's are those names.
IN_SPACK_AND_CONDA = {
    "g++": ("cxx", 'compiler("cxx")'),
    "cmake": ("cmake", "cmake"),
    "ninja-build": ("ninja", "ninja"),
    "pkg-config": ("pkgconfig", "pkg-config"),
    "libfmt-dev": ("fmt", "fmt"),
    "libtomlplusplus-dev": ("tomlplusplus", "tomlplusplus"),
    "libisal-dev": ("isa-l", "isa-l"),
    "liburing-dev": ("liburing", "liburing"),
    "libcli11-dev": ("cli11", "cli11"),
    "nlohmann-json3-dev": ("nlohmann-json", "nlohmann_json"),
}
# What packages name besides: C, Fortran, MPI, and their own tools. packages.txt has these under other purposes.
BESIDES = {
    "debian/control": {"debhelper-compat", "gfortran", "libmpich-dev"},
    "packaging/spack/package.py": {"c", "fortran", "mpi", "python"},
    "packaging/conda/recipe.yaml": {'compiler("c")', 'compiler("fortran")', 'stdlib("c")', "mpi"},
}

# How a library is imported, where its name does not tell.
MODULES = {"megatron-core": "megatron", "orbax-checkpoint": "orbax"}

# Symbols files, by the map of the library's symbols. A package may have further libraries.
SYMBOLS = {
    "src/tailrace.map": ("debian/libtailrace1.symbols", "libtailrace.so.1"),
    "src/tailrace_mpi.map": ("debian/libtailrace-mpi1.symbols", "libtailrace_mpi.so.1"),
}


def text_of(root: pathlib.Path, path: str) -> str:
    return (root / path).read_text(encoding="utf-8")


def versions_agree(root: pathlib.Path) -> list[str]:
    """Every file that names the version names that of CMakeLists.txt."""
    found = {}
    for path, pattern in VERSIONS.items():
        match = re.search(pattern, text_of(root, path), re.M)
        found[path] = ".".join(match.groups()) if match else "no version"
    wanted = found["CMakeLists.txt"]
    return [f"{path}: {version}, not {wanted}" for path, version in found.items() if version != wanted]


def named_in(root: pathlib.Path, path: str) -> set[str]:
    """The dependencies that a package names for its build."""
    text = text_of(root, path)
    if path == "debian/control":
        field = re.search(r"^Build-Depends:\n((?: .*\n)+)", text, re.M)
        return {line.split("(")[0].strip(" ,") for line in field[1].splitlines()} if field else set()
    if path.endswith(".py"):
        return {name.split("@")[0] for name in re.findall(r'^    depends_on\("([^"]+)"', text, re.M)}
    needed = text[text.index("requirements:") : text.index("  run:")]
    names = re.findall(r"^ +(?:-|then:) (?!if:)(?:\$\{\{ (.+?) \}\}|([\w+-]+))", needed, re.M)
    return {name for pair in names for name in pair if name}


def dependencies_agree(root: pathlib.Path) -> list[str]:
    """Every package is built with what scripts/packages.txt names, and with nothing that is not known here."""
    lines = (line.split("|") for line in text_of(root, "scripts/packages.txt").splitlines() if "|" in line)
    build = [fields[1].strip() for fields in lines if fields[0].strip() == "build"]
    bad = [
        f"scripts/packages.txt: {name} has no names in Spack and conda-forge"
        for name in build
        if name not in IN_SPACK_AND_CONDA
    ]
    bad += [f"scripts/packages.txt: {name} is gone" for name in IN_SPACK_AND_CONDA if name not in build]
    known = [(name, *IN_SPACK_AND_CONDA[name]) for name in build if name in IN_SPACK_AND_CONDA]
    for at, path in enumerate(BESIDES):
        wanted = {names[at] for names in known} | BESIDES[path]
        named = named_in(root, path)
        bad += [f"{path}: {name} is missing" for name in sorted(wanted - named)]
        bad += [f"{path}: {name} is not in scripts/packages.txt" for name in sorted(named - wanted)]
    return bad


def symbols_agree(root: pathlib.Path) -> list[str]:
    """A symbols file has the names and versions of the library's map. TAILRACE_PRIVATE promises nothing."""
    bad = []
    for map_path, (symbols_path, soname) in SYMBOLS.items():
        wanted = set()
        code = re.sub(r"/\*.*?\*/", "", text_of(root, map_path), flags=re.S)
        for version, names in re.findall(r"(TAILRACE_[\d.]+) \{\s+global:(.*?)(?:local:|\})", code, re.S):
            wanted |= {f"{name}@{version}" for name in re.findall(r"[\w*]+(?=;)", names)}
            wanted.add(f"{version}@{version}")
        block = re.search(rf"^{re.escape(soname)} .*\n((?: .*\n)*)", text_of(root, symbols_path), re.M)
        lines = block[1].splitlines() if block else []
        named = {line.split()[0] for line in lines if re.match(r" \S+@TAILRACE_[\d.]+ ", line)}
        bad += [
            f"{symbols_path}: {name} of {map_path} is missing"
            for name in sorted(wanted)
            if not fnmatch.filter(named, name)
        ]
        bad += [
            f"{symbols_path}: {name} is not in {map_path}"
            for name in sorted(named)
            if not any(fnmatch.fnmatch(name, each) for each in wanted)
        ]
        if not wanted:
            bad.append(f"{map_path}: no symbols were found")
    return bad


def libraries_are_named(root: pathlib.Path) -> list[str]:
    """docs/dependencies.md names every library of python/env that the Python package imports."""
    listed = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "python/env").glob("*.txt")))
    imported: set[str] = set()
    for path in (root / "python/tailrace").rglob("*.py"):
        imported |= set(re.findall(r"^ *(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.M))
    page = text_of(root, "docs/dependencies.md").lower()
    libraries = {
        name: MODULES.get(name, name.lower().replace("-", "_")) for name in re.findall(r"^([\w.-]+)==", listed, re.M)
    }
    return [
        f"docs/dependencies.md: {name} is missing"
        for name, module in sorted(libraries.items())
        if module in imported and not re.search(rf"\b{module.removeprefix('pytorch_')}", page)
    ]


CHECKS = (versions_agree, dependencies_agree, symbols_agree, libraries_are_named)

# What is changed, one at a time, and what the complaints must then name.
MUTATIONS = [
    *((path, r"(?s)\A(.*?)1(\.0\.0)", r"\g<1>8\2", path) for path in VERSIONS
      if path not in ("include/tailrace.h", "CMakeLists.txt")),
    ("CMakeLists.txt", r"VERSION 1\.0\.0 ", "VERSION 1.0.1 ", "pyproject.toml"),
    ("include/tailrace.h", r"VERSION_PATCH 0", "VERSION_PATCH 1", "include/tailrace.h"),
    ("scripts/packages.txt", r"(?m)^build +\| cmake .*\n", "", "cmake is gone"),
    ("scripts/packages.txt", r"\Z", "build | libhwloc-dev | why\n", "libhwloc-dev has no names"),
    ("debian/control", r"(?m)^ libisal-dev,\n", "", "libisal-dev is missing"),
    ("debian/control", r"(?m)^ ninja-build,\n", " ninja-build,\n scons,\n", "scons is not in"),
    ("packaging/spack/package.py", r'(?m)^    depends_on\("fmt.*\n', "", "fmt is missing"),
    ("packaging/spack/package.py", r'depends_on\("fmt@9:"\)', 'depends_on("fmt")\n    depends_on("boost")',
     "boost is not in"),
    ("packaging/conda/recipe.yaml", r"    - liburing\n", "", "liburing is missing"),
    ("packaging/conda/recipe.yaml", r'    - \$\{\{ compiler\("cxx"\) \}\}\n', "", 'compiler("cxx") is missing'),
    ("packaging/conda/recipe.yaml", r"    - liburing\n", "    - liburing\n    - hwloc\n", "hwloc is not in"),
    ("src/tailrace.map", r"tailrace_close;", "tailrace_close;\n        tailrace_more;",
     "tailrace_more@TAILRACE_1.0 of"),
    ("debian/libtailrace1.symbols", r" tailrace_save@.*\n", "", "tailrace_save@TAILRACE_1.0 of"),
    ("debian/libtailrace1.symbols", r"tailrace_capture@TAILRACE_1\.2", "tailrace_capture@TAILRACE_1.0",
     "tailrace_capture@TAILRACE_1.0 is not in"),
    ("debian/libtailrace-mpi1.symbols", r" tailrace_io_test@.*\n", "", "tailrace_io_test@TAILRACE_1.0 of"),
    ("docs/dependencies.md", r"\[Accelerate\]\([^)]*\), ", "", "docs/dependencies.md: accelerate is missing"),
]  # fmt: skip


class PackagingTest(unittest.TestCase):
    def test_packages_say_what_the_project_says(self) -> None:
        for check in CHECKS:
            with self.subTest(check.__name__):
                self.assertEqual(check(PROJECT), [])

    def test_each_check_complains_of_a_change(self) -> None:
        read = {*VERSIONS, *BESIDES, *SYMBOLS, *(path for path, _ in SYMBOLS.values()), "scripts/packages.txt"}
        read.add("docs/dependencies.md")
        for pattern in ("env/*.txt", "tailrace/**/*.py"):
            read |= {str(path.relative_to(PROJECT)) for path in (PROJECT / "python").glob(pattern)}
        for path, pattern, replacement, complaint in MUTATIONS:
            with self.subTest(path, complaint=complaint), tempfile.TemporaryDirectory() as top:
                root = pathlib.Path(top)
                for each in read:
                    (root / each).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(PROJECT / each, root / each)
                changed, count = re.subn(pattern, replacement, text_of(root, path), count=1)
                self.assertEqual(count, 1, f"{path} has nothing to change like {pattern}")
                (root / path).write_text(changed, encoding="utf-8")
                complaints = [line for check in CHECKS for line in check(root)]
                self.assertTrue(any(complaint in line for line in complaints), complaints)


if __name__ == "__main__":
    unittest.main()
