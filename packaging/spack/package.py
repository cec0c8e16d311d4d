"""Stripewise for Spack. Put this file into `packages/stripewise/` of a repository of yours."""

from spack.package import *


class Stripewise(Package):
    """Makes parallel files faster on storage that mixes slow and fast servers."""

    homepage = "https://example.invalid/stripewise"
    git = "https://example.invalid/stripewise.git"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("gmake", type="build")
    depends_on("binutils", type="build")
    # Reads Darshan's logs, and is found when the command runs.
    depends_on("darshan-util", type="run")

    # The library wraps calls of glibc.
    requires("platform=linux")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}")
