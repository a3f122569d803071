"""The house rules that a program can check. Each rule is a function from a tree to a list of complaints.

A tree is a directory and the project's files in it (what git tracks or would track; without git, all files
outside build directories). Complaints are "path:line: what is wrong".
"""
import collections
import os
import re
import subprocess

CODE = (".h", ".hpp", ".c", ".cc")
TEXT = CODE + (".py", ".sh", ".md", ".txt", ".cmake", ".in", ".json", ".toml", ".1", ".3", ".map", ".svg", "")
MOST_LINES = 600
MOST_FILES = 24

# Library code leaves ending and printing to the program. One function may print: the default of the log.
FORBIDDEN_CALLS = re.compile(
    r"(?<![\w.>])(?:std::|::)?(exit|_exit|_Exit|quick_exit|abort|terminate|printf|fprintf|vprintf|vfprintf"
    r"|puts|fputs|putchar|perror|fwrite)\s*\(|(std::(?:cout|cerr|clog))|(fmt::print)|(MPI_Abort)")
MAY_PRINT = {"src/base/log.cc": "fwrite"}
PROGRAMS_OF_COMPAT = {"compat/veloc/backend.cc", "compat/veloc/inspect.cc", "compat/scr/index_command.cc",
                      "compat/scr/print_command.cc", "compat/scr/halt_command.cc"}

# Places that only exist on one person's or one machine's disk. Put together from halves, so that this file
# does not break its own rule.
MACHINE_PATHS = re.compile(r"(?<![\w.-])/(?:wo" + "rk|ho" + "me|ro" + "ot|Us" + "ers)/")


class Tree:
    def __init__(self, root):
        self.root = root
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        if listed.returncode == 0:
            paths = [p for p in listed.stdout.decode().split("\0") if p]
        else:
            paths = []
            for directory, names, files in os.walk(root):
                names[:] = [n for n in names
                            if not n.startswith("build") and n not in (".git", "__pycache__")]
                paths += [os.path.relpath(os.path.join(directory, f), root) for f in files]
        self.paths = sorted(p for p in paths if os.path.isfile(os.path.join(root, p)))

    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as f:
            return f.read()

    def code(self, *tops):
        return [p for p in self.paths if p.endswith(CODE) and p.startswith(tuple(t + "/" for t in tops))]


def without_comments_and_strings(text):
    """The same text with comments and literals blanked, line by line, so that line numbers stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"'
                         r"|(?<!\w)'(?:\\.|[^'\\\n])+'", re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def lines_matching(text, pattern):
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


def mpi_stays_in_its_files(tree):
    """<mpi.h> only in files named *mpi*, in the programs around the library, and in headers with the names of
    another library's."""
    bad = []
    for path in tree.code("src", "include", "fortran", "compat", "tools", "fuzz"):
        if path.startswith("include/tailrace/compat/"):
            continue
        for line, match in lines_matching(tree.text(path), INCLUDE):
            if match[1] == "mpi.h" and "mpi" not in os.path.basename(path):
                bad.append("%s:%d: includes <mpi.h>; only files named *mpi* may" % (path, line))
    return bad


def liburing_stays_in_one_file(tree):
    """<liburing.h> in one file."""
    users = ["%s:%d" % (path, line) for path in tree.code("src", "include", "tools")
             for line, match in lines_matching(tree.text(path), INCLUDE) if match[1] == "liburing.h"]
    return ["%s: includes <liburing.h>, and so does %s; one file may" % (u, users[0]) for u in users[1:]]


# The C interface is no static library of its own in src/CMakeLists.txt: it is compiled into libtailrace. Nor is
# the MPI-IO interposer, which sees the public headers, and starts its thread as everybody does.
C_API_SEES = {"c_api", "files", "collective", "requests", "session", "agent", "agent_process", "flush", "read", "catalog", "memory", "array", "config", "format", "transport",
              "storage", "base", "threads"}


def parts_see_only_their_layers(tree):
    """A part includes only the parts that src/CMakeLists.txt lets it see."""
    sees = {"c_api": C_API_SEES, "mpiio": {"mpiio", "base", "threads"}}
    for match in re.finditer(r"^tailrace_part\((\w+)([^)]*)\)", tree.text("src/CMakeLists.txt"), re.M):
        sees[match[1]] = set(match[2].split()) | {match[1]}
    bad = []
    for path in tree.code("src"):
        pieces = path.split("/")
        if len(pieces) < 3:
            continue
        part = pieces[1]
        if part not in sees:
            bad.append("%s:1: src/%s is no part named in src/CMakeLists.txt" % (path, part))
            continue
        for line, match in lines_matching(tree.text(path), INCLUDE):
            other = match[1].split("/")[0]
            if "/" in match[1] and other in sees and other not in sees[part]:
                bad.append("%s:%d: includes %s, but %s may see only: %s"
                           % (path, line, match[1], part, " ".join(sorted(sees[part] - {part})) or "nothing"))
    return bad


def library_never_exits_or_prints(tree):
    """No exit, abort or printing in src/, include/ and the libraries of compat/."""
    bad = []
    for path in tree.code("src", "include", "compat"):
        if path in PROGRAMS_OF_COMPAT:
            continue
        for line, match in lines_matching(without_comments_and_strings(tree.text(path)), FORBIDDEN_CALLS):
            what = next(g for g in match.groups() if g)
            if MAY_PRINT.get(path) != what:
                bad.append("%s:%d: %s: the library leaves exiting and printing to the program"
                           % (path, line, what))
    return bad


def folders_are_small(tree, most=MOST_FILES):
    """A folder of the library has no more files than a reader takes in. (Not among RULES: its planted case has more
    than one file.)"""
    count = collections.Counter(os.path.dirname(path) for path in tree.code("src"))
    return [f"{folder}: {files} files; a folder has {most} at most" for folder, files in sorted(count.items())
            if files > most]


def files_are_small(tree):
    """Source files stay under 600 lines."""
    bad = []
    for path in tree.paths:
        if path.endswith(CODE + (".py",)):
            count = tree.text(path).count("\n")
            if count > MOST_LINES:
                bad.append("%s:%d: %d lines; files stay under %d" % (path, MOST_LINES, count, MOST_LINES))
    return bad


def no_machine_paths(tree):
    """No file names a place on somebody's machine."""
    bad = []
    for path in tree.paths:
        if os.path.splitext(path)[1] in TEXT and "/corpus/" not in path:
            for line, match in lines_matching(tree.text(path), MACHINE_PATHS):
                bad.append("%s:%d: names %s..." % (path, line, match.group()))
    return bad


# What a simulation replaces by its own. The log keeps a mutex of the system, and says why.
SYSTEM_THREADS = re.compile(
    r"std::(?:mutex|shared_mutex|recursive_mutex|condition_variable\w*|lock_guard|unique_lock|shared_lock|jthread"
    r"|thread|random_device|this_thread::sleep_\w+|chrono::(?:steady|system)_clock::now)\b")
MAY_USE_SYSTEM_THREADS = {"src/base/log.cc"}


def threads_and_time_come_from_one_part(tree):
    """Mutexes, threads, clocks and chance come from src/threads, so that a simulation can replace them."""
    return ["%s:%d: %s; src/threads has what takes its place" % (path, line, match.group())
            for path in tree.code("src")
            if not path.startswith("src/threads/") and path not in MAY_USE_SYSTEM_THREADS
            for line, match in lines_matching(without_comments_and_strings(tree.text(path)), SYSTEM_THREADS)]


MUTEX = re.compile(r"^[ \t]*(?:mutable |tailrace::internal::|static )*(?:(?:Shared)?Mutex|std::mutex) (\w+);", re.M)
# These say in a comment why they are not annotated.
GUARDS_MORE_THAN_IT_NAMES = {"src/background/collective_background.h", "src/background/message_background.h",
                             "src/threads/mutex.h", "python/src/session.cc"}


def mutexes_say_what_they_guard(tree):
    """A mutex is named by a GUARDED_BY in the same file."""
    return ["%s:%d: nothing is GUARDED_BY(%s)" % (path, line, match[1])
            for path in tree.code("src", "python/src", "tools") if path not in GUARDS_MORE_THAN_IT_NAMES
            for line, match in lines_matching(tree.text(path), MUTEX)
            if "GUARDED_BY(%s)" % match[1] not in tree.text(path)]


# Pages that name files of src by part and name, as `part/file` or `part/file.cc`.
MAPS = ("CONTRIBUTING.md", "docs/design.md")
CODE_WORD = re.compile(r"`([^`\n]+)`")


def maps_name_what_is_there(tree):
    """The files that CONTRIBUTING.md and docs/design.md name are in src, and so are the functions beside them."""
    files = {p[len("src/"):] for p in tree.paths if p.startswith("src/")}
    parts = {f.split("/")[0] for f in files if "/" in f}
    bad = []
    for path in (p for p in MAPS if p in tree.paths):
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            words = CODE_WORD.findall(line)
            named = [w for w in words if re.fullmatch(r"\w+/\w+(\.h|\.cc)?", w) and w.split("/")[0] in parts]
            there = {w: [f for f in (w, w + ".h", w + ".cc") if f in files] for w in named}
            bad += ["%s:%d: src/%s is not there" % (path, number, w) for w in named if not there[w]]
            functions = re.findall(r"\| `(?:\w+::)?(\w+)` (?=\|)", line)  # alone in a cell of a table
            text = "".join(tree.text("src/" + f) for found in there.values() for f in found)
            bad += ["%s:%d: %s is not in %s" % (path, number, function, " or ".join(named))
                    for function in functions
                    if text and not re.search(r"\b%s\(" % function, text)]
    return bad


def nothing_is_left_open(tree):
    """No notes about work to be done in the code: it is done, or it is an issue."""
    note = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    return ["%s:%d: %s" % (path, line, match.group())
            for path in tree.paths if os.path.splitext(path)[1] in TEXT and "/corpus/" not in path
            for line, match in lines_matching(tree.text(path), note)]


# Tables, quotations and pictures keep their lines, and so does code.
NO_PROSE = re.compile(r"[|<>!]|    |\[[\w.-]+\]: ")
BEGINS_A_LINE = re.compile(r" *([-*#|]|\d+\.) ?")
MOST_SHORT = 60  # a line that is no longer with the next line's first word could have had that word


def prose_keeps_its_columns(tree):
    """Lines of prose in pages end at 100 columns, and not long before."""
    bad = []
    for path in tree.paths:
        if not path.endswith(".md") or path.startswith("tests/"):
            continue
        in_code, before = False, ""
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            fence = line.lstrip().startswith("```")
            in_code ^= fence
            is_prose = not in_code and not fence and not NO_PROSE.match(line)
            if len(line) > 100 and is_prose:
                bad.append("%s:%d: %d columns; prose has 100" % (path, number, len(line)))
            if before.strip() and is_prose and line.strip() and not BEGINS_A_LINE.match(line):
                if len(before) + 1 + len(line.split()[0]) <= MOST_SHORT:
                    bad.append("%s:%d: the line before has room; wrap the paragraph again" % (path, number))
            before = line if is_prose and not line.startswith("#") else ""
    return bad


def no_name_looks_like_an_option(tree):
    """No file or directory begins with a hyphen: that was an option which a program took for a path."""
    return ["%s: a name begins with a hyphen" % path for path in tree.paths
            if any(name.startswith("-") for name in path.split("/"))]


RULES = [mpi_stays_in_its_files, liburing_stays_in_one_file, parts_see_only_their_layers,
         library_never_exits_or_prints, files_are_small, no_machine_paths, nothing_is_left_open,
         threads_and_time_come_from_one_part, mutexes_say_what_they_guard, maps_name_what_is_there,
         prose_keeps_its_columns, no_name_looks_like_an_option]
