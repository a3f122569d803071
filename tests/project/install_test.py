#!/usr/bin/env python3
"""What is installed is enough: the examples of the pages, as they stand there, build against it and run.

Installs the build into a fresh directory whose name has spaces; takes the blocks of README.md, docs/linking.md
and docs/levels.md marked `<!-- test: NAME -->`; builds the programs once with CMake (find_package) and once with
pkg-config; and runs each twice in a fresh directory: the second run must go on where the first ended. The commands of
docs/levels.md run as they stand. The same projects are built with the oldest CMake that the package is made for.
Without --mpicc the MPI example is left out, and find_package is asked without its component.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile


class Failure(Exception):
    pass


def run(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
                          stdin=subprocess.DEVNULL, **how)
    if done.returncode != 0:
        raise Failure("%s: status %d\n%s" % (" ".join(command), done.returncode, done.stdout))
    return done.stdout


def marked_blocks(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return dict(re.findall(r"^<!-- test: (\S+) -->\n```\w*\n(.*?)^```$", text, re.M | re.S))


def expect(text, wanted, what):
    if wanted not in text:
        raise Failure("%s did not say '%s' but:\n%s" % (what, wanted, text))


def runs_and_goes_on(what, command, directory, environment):
    """Runs it twice: from step 0, then from step 1000, where the first run ended."""
    os.makedirs(directory, exist_ok=True)
    local = os.path.join(directory, "local")
    environment = dict(environment, TAILRACE_LOCAL_DIR=local)
    expect(run(command, cwd=directory, env=environment), "going on at step 0", what)
    shutil.rmtree(local)     # as if the node had been replaced: the shared directory must do
    expect(run(command, cwd=directory, env=environment), "going on at step 1000", what + " (second run)")


def tried_on_one_machine(page, block, top, source, options, environment):
    """A page's "Try it on one machine" as it stands there, as a function that runs it and returns what was said, and
    its directory. The names of the MPI library's commands are this build's. The function takes the number of the try:
    a clock kills the program after 8 s, and as the page says, later where the machine needs longer."""
    directory = os.path.join(top, "try " + page)
    os.makedirs(directory)
    shutil.copy(os.path.join(source, "examples", "heat.c"), directory)
    for name, command in (("mpicc.mpich", options.mpicc), ("mpirun.mpich", options.mpiexec)):
        if name not in block:
            raise Failure("docs/%s.md does not use %s" % (page, name))
        block = block.replace(name, '"%s"' % command)
    # The prefix of this test has a space, so what pkg-config says must be read once more by the shell.
    flags = "$(pkg-config --cflags --libs tailrace_mpi)"
    block = "\n".join("eval '%s' \"%s\"" % (line.replace(flags, ""), flags) if flags in line else line
                      for line in block.split("\n"))
    environment = dict(environment, PATH=os.path.join(top, "prefix", "bin") + os.pathsep + environment["PATH"])
    kill = "timeout -s KILL 8 "
    if block.count(kill) != 1:
        raise Failure("docs/%s.md does not kill its program after 8 s" % page)

    def tried(number):
        later = block.replace(kill, "timeout -s KILL %d " % (8 * 2 ** number))
        return run(["sh", "-c", later], cwd=directory, env=environment)

    return tried, directory


def a_lost_nodes_share_is_written(block, top, source, options, environment):
    tried, directory = tried_on_one_machine("levels", block, top, source, options, environment)
    # On a busy machine the program may be killed before its second epoch: then it is tried again.
    for number in range(4):
        said = tried(number)
        # The kill may fall while two epochs wait: then drain brings the newest of those that survive the loss.
        waiting = re.findall(r"note: epoch (\d+) of .*protected by partner\); to bring it here, run `tailrace drain`",
                             said)
        if waiting:
            break
    else:
        raise Failure("the killed program has left no newer protected epoch:\n%s" % said)
    newest = max(waiting, key=int)
    committed = "epoch %s of run 1 of job tailrace in %s: committed" % (newest, os.path.join(directory, "plate"))
    expect(said, committed, "the block of docs/levels.md")
    expect(said, "going on from step %s\n" % newest, "the run after the loss of a node:\n" + said)


def an_agent_finishes_what_was_left(block, top, source, options, environment):
    tried, _ = tried_on_one_machine("agent", block, top, source, options, environment)
    for number in range(4):  # the program may be killed before its second epoch, as above
        said = tried(number)
        listed = [line.split() for line in said.split("\n") if re.match(r" *\d+ ", line)]
        epochs = [int(words[0]) for words in listed if "complete" in words]
        if len(epochs) >= 2:
            break
    else:
        raise Failure("two epochs were to be there after the block of docs/agent.md:\n%s" % said)
    expect(said, "nothing to finish for programs that have ended", "the block of docs/agent.md")
    expect(said, "going on from step %d\n" % max(epochs), "the run after the agent's:\n" + said)


def manual_leads_to_pages(directory, with_mpi):
    """`man` finds every function that the installed headers declare, and only pages that are there."""
    headers = glob.glob(os.path.join(os.path.dirname(os.path.dirname(directory)), "include", "*.h"))
    functions = set()
    for header in headers:
        with open(header, encoding="utf-8") as f:
            functions |= set(re.findall(r"^TAILRACE_API [^;(]*?(tailrace_\w+)\(", f.read(), re.M))
    if "tailrace_save" not in functions or ("tailrace_file_open" in functions) != with_mpi:
        raise Failure("the installed headers declare: %s" % sorted(functions))
    for name in functions:
        path = os.path.join(directory, "man3", name + ".3")
        if not os.path.exists(path):
            raise Failure("no manual page of %s was installed" % name)
        with open(path, encoding="utf-8") as f:
            leads_to = re.fullmatch(r"\.so (man3/\w+\.3)\n", f.read())
        if not leads_to:
            raise Failure("%s does not lead to a page" % path)
        with open(os.path.join(directory, leads_to[1]), encoding="utf-8") as f:
            expect(f.read(), ".Fo %s\n" % name, leads_to[1])


def finds_package_by_old_policies(cmake, top, prefix, compiler):
    if int(re.search(r"version (\d+)", run([cmake, "--version"])).group(1)) >= 4:
        print("this CMake has no policies older than those of 3.5: a program with an older minimum is left out")
        return
    source = os.path.join(top, "old program")
    os.makedirs(source)
    with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as f:
        f.write("cmake_minimum_required(VERSION 3.0)\nproject(old C)\nfind_package(tailrace REQUIRED)\n"
                "if(x IN_LIST y)\nendif()\n")
    command = [cmake, "-S", source, "-B", os.path.join(top, "old build"), "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix,
               "-DCMAKE_C_COMPILER=" + compiler, "-Wno-deprecated"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    # The program's own IN_LIST fails, as it must by its policies, which the package leaves alone; nothing else does.
    where = re.findall(r"CMake Error at (.*) \(if\)", done.stdout)
    if done.returncode == 0 or where != ["CMakeLists.txt:4"]:
        raise Failure("a program of CMake 3.0 does not find the package:\n" + done.stdout)


def configured(cmake, top, name, prefix, find, *settings):
    """What CMake says of a program in C that finds the package so, whatever comes of it."""
    source = os.path.join(top, name)
    os.makedirs(source)
    with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as f:
        f.write("cmake_minimum_required(VERSION %s)\nproject(program C)\n%s\n" % (OLDEST_CMAKE, find))
    command = [cmake, "-S", source, "-B", os.path.join(source, "build"), "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix]
    # Lines are wrapped where the prefix ends them.
    said = subprocess.run(command + list(settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=240).stdout
    return " ".join(said.split())


def a_wrong_component_is_named(options, top, prefix):
    said = configured(options.cmake, top, "wrong component", prefix, "find_package(tailrace REQUIRED COMPONENTS mp)",
                      "-DCMAKE_C_COMPILER=" + options.cc)
    expect(said, "there is no component 'mp'; there are mpi, fortran", "find_package(tailrace COMPONENTS mp)")


def an_mpi_compiler_by_its_name_is_known(options, top, prefix):
    """No warning of another MPI library for the compiler of this build, by its name or by a link, and one for another
    compiler."""
    directory, name = os.path.split(options.mpicc)
    # Of the directory, because Open MPI's compiler is known to itself by its own name.
    os.symlink(directory, os.path.join(top, "link"))
    link = os.path.join(top, "link", name)
    other = os.path.join(top, "other mpicc")
    with open(other, "w", encoding="utf-8") as f:
        f.write('#!/bin/sh\nexec "%s" "$@"\n' % options.mpicc)
    os.chmod(other, 0o755)
    os.environ["PATH"] = directory + os.pathsep + os.environ["PATH"]
    for number, (chosen, warned) in enumerate(((name, False), (options.mpicc, False), (link, False), (other, True))):
        said = configured(options.cmake, top, "chosen compiler %d" % number, prefix,
                          "find_package(tailrace REQUIRED COMPONENTS mpi)", "-DCMAKE_C_COMPILER=" + options.cc,
                          "-DMPI_C_COMPILER=" + chosen)
        expect(said, "Build files have been written", "find_package with MPI_C_COMPILER=" + chosen)
        if ("Different MPI libraries cannot be mixed" in said) != warned:
            raise Failure("with MPI_C_COMPILER=%s %s warning was expected:\n%s" % (chosen, "a" if warned else "no", said))


def version_of(source):
    with open(os.path.join(source, "CMakeLists.txt"), encoding="utf-8") as f:
        return re.search(r"^project\(tailrace VERSION (\S+)", f.read(), re.M)[1]


OLDEST_CMAKE = "3.16"
C_PROGRAM = """#include <stdio.h>
#include <tailrace.h>
int main(void) { return puts(tailrace_version()) < 0; }
"""


def oldest_cmake(make_environment):
    """The command of that CMake, or None with the reason printed."""
    made = subprocess.run([make_environment, "cmake"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=240, stdin=subprocess.DEVNULL)
    if made.returncode != 0:
        print("CMake %s is left out: %s could not make its environment:\n%s"
              % (OLDEST_CMAKE, make_environment, made.stdout))
        return None
    # The program itself: the package's script imports modules that newer Pythons no longer have.
    found = glob.glob(os.path.join(made.stdout.split("\n")[-2], "lib", "python*", "site-packages", "cmake", "data",
                                   "bin", "cmake"))
    if len(found) != 1:
        raise Failure("one cmake was to be in the environment of %s: %s" % (make_environment, found))
    expect(run([found[0], "--version"]), "cmake version %s." % OLDEST_CMAKE, found[0])
    return found[0]


def builds_with_oldest_cmake(cmake, options, top, prefix, environment, pages):
    """Each page's project, as it asks for that CMake, and projects in C alone and in C++ alone, which run."""
    version = version_of(options.source)
    projects = {"only C": ("program.c", C_PROGRAM, "C"), "only C++": ("program.cc", C_PROGRAM, "CXX")}
    settings = ["-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix, "-DCMAKE_C_COMPILER=" + options.cc,
                "-DCMAKE_CXX_COMPILER=" + options.cxx]
    for name, (program, text, language) in projects.items():
        source = os.path.join(top, "oldest CMake " + name)
        os.makedirs(source)
        with open(os.path.join(source, program), "w", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as f:
            f.write("cmake_minimum_required(VERSION %s)\nproject(program %s)\nfind_package(tailrace %s REQUIRED)\n"
                    "add_executable(program %s)\ntarget_link_libraries(program PRIVATE tailrace::tailrace)\n"
                    % (OLDEST_CMAKE, language, version.rpartition(".")[0], program))
        pages = dict(pages, **{name: source})
    for name, source in pages.items():
        with open(os.path.join(source, "CMakeLists.txt"), encoding="utf-8") as f:
            expect(f.read(), "cmake_minimum_required(VERSION %s)" % OLDEST_CMAKE, "the project of " + name)
        binary = os.path.join(top, "oldest CMake build of " + name)
        run([cmake, "-S", source, "-B", binary] + settings)
        run([cmake, "--build", binary])
        if name in projects:
            expect(run([os.path.join(binary, "program")], env=environment), version, name)


def fortran_builds_and_runs(options, top, prefix, environment):
    """The program of docs/fortran.md, built in both of its ways, runs and goes on."""
    blocks = marked_blocks(os.path.join(options.source, "docs", "fortran.md"))
    directory = os.path.join(top, "fortran")
    os.makedirs(directory)
    for name in ("example.f90", "fortran/CMakeLists.txt"):
        with open(os.path.join(directory, os.path.basename(name)), "w", encoding="utf-8") as f:
            f.write(blocks[name])
    binary = os.path.join(directory, "build")
    run([options.cmake, "-S", directory, "-B", binary, "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix])
    run([options.cmake, "--build", binary])
    rest = blocks["fortran/pkg-config.sh"].strip().split(" ", 1)[1]
    run(["sh", "-ec", 'cd "$1" && eval "\\"\\$2\\" %s"' % rest, "sh", directory, options.fortran], env=environment)
    for how, place in (("find_package", binary), ("pkg-config", directory)):
        runs_and_goes_on("the Fortran example by " + how,
                         [options.mpiexec, "-n", "2", os.path.join(place, "simulation")],
                         os.path.join(top, "run fortran " + how), environment)


def compat_builds_and_runs(options, top, prefix, environment, library, settings):
    """The program of docs/LIBRARY.md, built in both of its ways, runs and goes on. `settings` gives environment
    variables for a directory."""
    blocks = marked_blocks(os.path.join(options.source, "docs", library + ".md"))
    directory = os.path.join(top, library)
    os.makedirs(directory)
    for name in ("example.c", "CMakeLists.txt"):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
            f.write(blocks[library + "/" + name])
    binary = os.path.join(directory, "build")
    run([options.cmake, "-S", directory, "-B", binary, "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix])
    run([options.cmake, "--build", binary])
    rest = blocks[library + "/pkg-config.sh"].strip().split(" ", 1)[1]
    run(["sh", "-ec", 'cd "$1" && eval "\\"\\$2\\" %s"' % rest, "sh", directory, options.mpicc], env=environment)
    for how, place in (("find_package", binary), ("pkg-config", directory)):
        here = os.path.join(top, "run %s %s" % (library, how))
        os.makedirs(here)
        runs_and_goes_on("the example for %s by %s" % (library, how),
                         [options.mpiexec, "-n", "2", os.path.join(place, "simulation")], here,
                         dict(environment, **settings(here)))


def veloc_settings(here):
    # The example names this file; what it would say comes from the environment.
    with open(os.path.join(here, "veloc.cfg"), "w", encoding="utf-8") as f:
        f.write("# nothing\n")
    return {"VELOC_SCRATCH": os.path.join(here, "local"), "VELOC_MODE": "async",
            "VELOC_PERSISTENT": os.path.join(here, "persistent")}


def scr_settings(here):
    return {"SCR_CACHE_BYPASS": "0" if here.endswith("pkg-config") else "1"}


def fti_settings(here):
    # The example names this file.
    with open(os.path.join(here, "config.fti"), "w", encoding="utf-8") as f:
        f.write("[Basic]\nckpt_dir = local\nglbl_dir = global\nkeep_last_ckpt = 1\n")
    return {}


def fti_fortran_builds_and_runs(options, top, prefix, environment):
    """A program with FTI's Fortran module, built in both ways."""
    directory = os.path.join(top, "fti fortran")
    os.makedirs(directory)
    shutil.copy(os.path.join(options.source, "tests", "fti", "ranks_fortran.F90"), directory)
    with open(os.path.join(directory, "CMakeLists.txt"), "w", encoding="utf-8") as f:
        f.write("cmake_minimum_required(VERSION 3.22)\nproject(program C Fortran)\nfind_package(FTI REQUIRED)\n"
                "add_executable(program ranks_fortran.F90)\ntarget_link_libraries(program PRIVATE fti_f90.shared)\n")
    binary = os.path.join(directory, "build")
    run([options.cmake, "-S", directory, "-B", binary, "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix])
    run([options.cmake, "--build", binary])
    run(["sh", "-ec", 'cd "$1" && eval "\\"\\$2\\" ranks_fortran.F90 -o program $(pkg-config --cflags --libs '
         'tailrace_fti_f90)"', "sh", directory, options.fortran], env=environment)
    for how, place in (("find_package", binary), ("pkg-config", directory)):
        here = os.path.join(top, "run fti fortran " + how)
        os.makedirs(here)
        fti_settings(here)
        for status in ("0", "1"):
            said = run([options.mpiexec, "-n", "2", os.path.join(place, "program"), "config.fti", "2"], cwd=here,
                       env=environment)
            if ["status", status] not in [line.split() for line in said.splitlines()]:
                raise Failure("the Fortran program for FTI by %s was to say status %s:\n%s" % (how, status, said))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--build", "--source", "--cmake", "--cc", "--cxx"):
        parser.add_argument(name, required=True)
    parser.add_argument("--mpicc")
    parser.add_argument("--mpiexec")
    parser.add_argument("--veloc", action="store_true", help="VELOC's interface is built")
    parser.add_argument("--scr", action="store_true", help="SCR's interface is built")
    parser.add_argument("--fti", action="store_true", help="FTI's interface is built")
    parser.add_argument("--make-environment", required=True, help="scripts/python_env, for the oldest CMake")
    parser.add_argument("--fortran", help="the MPI library's compiler, if the Fortran module is built")
    options = parser.parse_args()
    with_mpi = bool(options.mpicc)
    pages = ["README.md"] + [os.path.join("docs", page) for page in ("linking.md", "levels.md", "agent.md")]
    blocks = {name: block for page in pages
              for name, block in marked_blocks(os.path.join(options.source, page)).items()}
    for name in ("example.c", "example.cc", "CMakeLists.txt", "pkg-config.sh", "levels.sh", "agent.sh"):
        if name not in blocks:
            raise Failure("no page has a block marked <!-- test: %s -->" % name)

    with tempfile.TemporaryDirectory(prefix="tailrace install ") as top:
        prefix = os.path.join(top, "prefix")
        source = os.path.join(top, "my simulation")
        run([options.cmake, "--install", options.build, "--prefix", prefix])
        found = glob.glob(os.path.join(prefix, "lib*", "**", "libtailrace.so"), recursive=True)
        if len(found) != 1:
            raise Failure("one libtailrace.so was to be installed: %s" % found)
        libdir = os.path.dirname(found[0])
        environment = dict(os.environ, LD_LIBRARY_PATH=libdir,
                           PKG_CONFIG_PATH=os.path.join(libdir, "pkgconfig"))
        # Open MPI starts nothing as root, and no more ranks than cores, unless told to.
        for name in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe"):
            environment["OMPI_" + name] = "1"

        # 1. The tool and the manual pages are there, and the tool says its version.
        expect(run([os.path.join(prefix, "bin", "tailrace"), "--version"]), version_of(options.source),
               "tailrace --version")
        if not glob.glob(os.path.join(prefix, "share", "man", "man1", "tailrace.1*")):
            raise Failure("no manual page was installed")
        manual_leads_to_pages(os.path.join(prefix, "share", "man"), with_mpi)

        # Without LD_LIBRARY_PATH: a program finds the libraries it was installed with.
        if with_mpi:
            plain = {name: value for name, value in environment.items() if name != "LD_LIBRARY_PATH"}
            expect(run([os.path.join(prefix, "bin", "tailrace-mpi-bench"), "--list"], env=plain), "posix-direct",
                   "tailrace-mpi-bench --list")

        # 2. find_package.
        os.makedirs(source)
        if not with_mpi:
            text = blocks["CMakeLists.txt"].replace(" COMPONENTS mpi", "")
            blocks["CMakeLists.txt"] = "\n".join(l for l in text.split("\n") if "simulation " not in l)
        for name in ("example.c", "example.cc", "CMakeLists.txt"):
            with open(os.path.join(source, name), "w", encoding="utf-8") as f:
                f.write(blocks[name])
        binary = os.path.join(top, "build")
        run([options.cmake, "-S", source, "-B", binary, "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix,
             "-DCMAKE_C_COMPILER=" + options.cc, "-DCMAKE_CXX_COMPILER=" + options.cxx])
        run([options.cmake, "--build", binary])
        programs = {"find_package": binary}

        # A program that asks for an old CMake.
        finds_package_by_old_policies(options.cmake, top, prefix, options.cc)

        # What programs often have wrong.
        a_wrong_component_is_named(options, top, prefix)
        if with_mpi:
            an_mpi_compiler_by_its_name_is_known(options, top, prefix)

        # 3. pkg-config. The page's plain names of compilers stand for the ones of this build.
        by_hand = os.path.join(top, "by hand")
        os.makedirs(by_hand)
        for line in blocks["pkg-config.sh"].strip().split("\n"):
            compiler, rest = line.split(" ", 1)
            if compiler == "mpicc.mpich" and not with_mpi:
                continue
            compiler = {"mpicc.mpich": options.mpicc, "c++": options.cxx}[compiler]
            # pkg-config quotes the prefix's spaces for a shell to read once more: eval.
            command = 'cd "$1" && eval "\\"\\$2\\" %s"' % rest
            for name in ("example.c", "example.cc"):
                shutil.copy(os.path.join(source, name), by_hand)
            run(["sh", "-ec", command, "sh", by_hand, compiler], env=environment)
        programs["pkg-config"] = by_hand

        if options.fortran:
            fortran_builds_and_runs(options, top, prefix, environment)
        if options.veloc:
            compat_builds_and_runs(options, top, prefix, environment, "veloc", veloc_settings)
        if options.scr:
            compat_builds_and_runs(options, top, prefix, environment, "scr", scr_settings)
        if options.fti:
            compat_builds_and_runs(options, top, prefix, environment, "fti", fti_settings)
            if options.fortran:
                fti_fortran_builds_and_runs(options, top, prefix, environment)

        # The same with an old CMake.
        old_cmake = oldest_cmake(options.make_environment)
        if old_cmake:
            pages = {"linking": source}
            for name in ("fortran", "veloc", "scr", "fti"):
                if getattr(options, name):
                    pages[name] = os.path.join(top, name)
            builds_with_oldest_cmake(old_cmake, options, top, prefix, environment, pages)

        # 4. They run, and the installed tool finds what they wrote.
        for how, directory in programs.items():
            there = os.path.join(top, "run " + how)
            runs_and_goes_on("the C++ example by " + how, [os.path.join(directory, "single")],
                             there + " single", environment)
            if with_mpi:
                runs_and_goes_on("the C example by " + how,
                                 [options.mpiexec, "-n", "2", os.path.join(directory, "simulation")],
                                 there + " simulation", environment)
            listing = run([os.path.join(prefix, "bin", "tailrace"), "ls",
                           os.path.join(there + " single", "plate")])
            expect(listing, "1000", "tailrace ls")
        # 5. What a newcomer tries of levels and agents. (Open MPI's launcher ends its ranks in another way.)
        if with_mpi and "mpich" in options.mpicc:
            a_lost_nodes_share_is_written(blocks["levels.sh"], top, options.source, options, environment)
            an_agent_finishes_what_was_left(blocks["agent.sh"], top, options.source, options, environment)
    print("installed; the pages' examples build with find_package and pkg-config, run, and go on%s"
          % ("" if with_mpi else " (without MPI: the C++ example only)"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print("install_test: %s" % failure)
        sys.exit(1)
