"""AMD's Core Math Library; see the class."""

import os
import re
from pathlib import Path

from spack_repo.builtin.build_systems.generic import Package

from spack.package import (
    Executable,
    InstallError,
    depends_on,
    find_headers,
    find_libraries,
    join_path,
    license,
    maintainers,
    provides,
    requires,
    run_after,
    variant,
    version,
    which,
)

#: Of acml-5-3-1-gfortran-64bit.tgz: the only checksum that was published.
SHA1 = "ec445af7944b6acdd1d692e5a1bf766395c0041e"

SOURCE = r"""
#include <stdio.h>
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *);
int main(void)
{
    int n = 2;
    double one = 1, zero = 0, a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[4];
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
    printf("%g %g %g %g\n", c[0], c[1], c[2], c[3]);
    return 0;
}
"""


class Acml(Package):
    """AMD's Core Math Library (BLAS and LAPACK), in its last version, for gfortran.

    The library that "Tweak your Interconnect" (ClusterMonkey's series on the Kronos cluster,
    2005) put in ATLAS's place to see HPL change without any change of the network. It lives on
    as AOCL-BLIS, the package `amdblis`, which a new comparison should use.

    AMD gave the archive out behind a licence that one accepts by a click and does so no more:
    a site that has acml-5-3-1-gfortran-64bit.tgz puts it into the folder from which it runs
    Spack, or into a source mirror. Any other file is refused by its checksum. By installing it
    the site says that it accepted the licence (ACML-EULA.txt in the archive).
    """

    homepage = "https://www.amd.com/en/developer/aocl.html"
    url = f"file://{Path.cwd()}/acml-5-3-1-gfortran-64bit.tgz"
    manual_download = True

    maintainers("seatrial-developers")

    license("LicenseRef-ACML-EULA", checked_by="seatrial-developers")

    version("5.3.1", sha1=SHA1)

    variant(
        "threads",
        default="none",
        values=("none", "openmp"),
        multi=False,
        description="One thread, or OpenMP's",
    )
    variant("fma4", default=False, description="For processors with FMA4 (AMD's family 15h)")

    depends_on("c", type=("build", "test"))

    provides("blas", "lapack")

    requires("target=x86_64:", msg="ACML is a binary for x86_64")
    requires("platform=linux", msg="ACML is a binary for Linux")

    @property
    def download_instr(self):
        return (
            "ACML must be supplied by the site: AMD no longer offers it. Put the file "
            f"{self.archive} (sha1 {SHA1}) into {Path.cwd()}, or into a source mirror "
            f"(spack mirror add) as _source-cache/archive/{SHA1[:2]}/{SHA1}.tgz. "
            "Without it, `amdblis` is the same vendor's library of today."
        )

    def url_for_version(self, version):
        return f"file://{Path.cwd()}/acml-{version.dashed}-gfortran-64bit.tgz"

    @property
    def archive(self):
        """Name of the file as AMD gave it out."""
        return f"acml-{self.version.dashed}-gfortran-64bit.tgz"

    @property
    def home(self):
        """Folder of the flavour that was asked for."""
        name = "gfortran64"
        if self.spec.satisfies("+fma4"):
            name += "_fma4"
        if self.spec.satisfies("threads=openmp"):
            name += "_mp"
        return join_path(self.prefix, name)

    @property
    def libs(self):
        name = "libacml_mp" if self.spec.satisfies("threads=openmp") else "libacml"
        return find_libraries(name, root=join_path(self.home, "lib"), shared=True)

    @property
    def headers(self):
        return find_headers("acml", root=join_path(self.home, "include"))

    def install(self, spec, prefix):
        script = f"./install-{self.archive.removesuffix('.tgz')}.sh"
        Executable(script)("-accept", f"-installdir={prefix}")
        if not self.libs:
            raise InstallError(
                f"{script} ended without an error, but left no library in {self.home}"
            )

    @run_after("install")
    def has_its_fortran_runtime(self):
        """ACML 5.3.1 needs the Fortran runtime of its time, which no newer gfortran brings."""
        text = Executable("ldd")(self.libs[0], output=str)
        absent = re.findall(r"^\s*(\S+) => not found", text, re.M)
        if absent:
            raise InstallError(
                f"ACML {self.version} needs {', '.join(absent)}, which this machine does not have",
                long_msg="libgfortran.so.3 came with GCC 4 to 6; a package of the distribution "
                "(libgfortran3) or a gcc@6 of Spack has it.",
            )

    def setup_run_environment(self, env):
        env.prepend_path("LD_LIBRARY_PATH", join_path(self.home, "lib"))

    def test_dgemm(self):
        """multiply two small matrices and compare with the product"""
        Path("product.c").write_text(SOURCE)
        cc = which(os.environ.get("CC", "cc"), required=True)
        cc("-O1", "product.c", "-o", "product", *self.libs.ld_flags.split(),
           f"-Wl,-rpath,{join_path(self.home, 'lib')}")  # fmt: skip
        found = Executable("./product")(output=str.split).split()
        if found != ["23", "34", "31", "46"]:
            raise RuntimeError(f"expected 23 34 31 46, found {' '.join(found)}")
