# The recipe of tailrace for Spack. packaging/README.md says how to use it, and what has been checked.
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Tailrace(CMakePackage):
    """Background checkpoints of parallel programs into few files. A save returns after one copy in memory; the
    checkpoints of all ranks flow into a number of files that the user chooses."""

    license("BSD-3-Clause")

    # There is no published archive yet: `spack develop` says where the sources are.
    version("1.0.0")

    variant("mpi", default=True, description="Build libtailrace_mpi and the commands that are MPI programs")
    variant("io_uring", default=True, description="Build the io_uring engine")
    variant("fortran", default=True, description="Build the Fortran module")
    variant("tools", default=True, description="Build the tailrace command")
    variant("veloc", default=False, when="+mpi", description="Build VELOC's interface over tailrace")
    variant("scr", default=False, when="+mpi", description="Build SCR's interface over tailrace")
    variant("fti", default=False, when="+mpi", description="Build FTI's interface over tailrace")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("fmt@9:")
    depends_on("tomlplusplus@3:")
    depends_on("isa-l@2.30:")
    depends_on("liburing@2.3:", when="+io_uring")
    depends_on("nlohmann-json@3.11:")
    depends_on("cli11@2.1:", when="+tools")
    depends_on("mpi", when="+mpi")
    depends_on("python@3.10:", type="run", when="+tools")

    # C++20.
    conflicts("%gcc@:11")
    conflicts("%clang@:13")
    conflicts("platform=darwin", msg="tailrace is for Linux")
    conflicts("platform=windows", msg="tailrace is for Linux")
    # Libraries and commands of the same names.
    conflicts("^veloc", when="+veloc")
    conflicts("^scr", when="+scr")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("TAILRACE_TESTS", False),
            self.define("TAILRACE_EXAMPLES", False),
            self.define("TAILRACE_WERROR", False),
            self.define("TAILRACE_BENCHMARKS", self.spec.satisfies("+mpi+tools")),  # tailrace-mpi-bench
            self.define_from_variant("TAILRACE_MPI", "mpi"),
            self.define_from_variant("TAILRACE_IO_URING", "io_uring"),
            self.define_from_variant("TAILRACE_FORTRAN", "fortran"),
            self.define_from_variant("TAILRACE_TOOLS", "tools"),
        ]
        for library in ("veloc", "scr", "fti"):
            args.append(self.define("TAILRACE_" + library.upper(), self.spec.satisfies("+" + library)))
        if self.spec.satisfies("+mpi"):
            mpi = self.spec["mpi"]
            args += [self.define("MPI_C_COMPILER", mpi.mpicc), self.define("MPI_CXX_COMPILER", mpi.mpicxx)]
            if self.spec.satisfies("+fortran"):
                args.append(self.define("MPI_Fortran_COMPILER", mpi.mpifc))
        return args
