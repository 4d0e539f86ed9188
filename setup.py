"""What `pyproject.toml` cannot say.

Each build begins with an empty `build/lib`: setuptools packs everything that it finds there, also
the modules of an earlier build that the project does not have any more.

Four small modules are written in C. They are optional: without a C compiler, or where it refuses
them, the package is built without them, and `odradek --version` says so. Such a wheel is one for
every platform.
"""

import shutil
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


class CleanBuild(build_py):
    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class TaggedWheel(bdist_wheel):
    def run(self) -> None:
        self.run_command("build")
        compiled = self.get_finalized_command("build_ext").get_outputs()
        if not any(Path(each).exists() for each in compiled):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


# A Python without the interpreter's lock has no stable ABI.
HAS_STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")
OPTIONAL = {
    "optional": True,
    "py_limited_api": HAS_STABLE_ABI,
    "extra_compile_args": ["-O2"],
}

setup(
    cmdclass={"build_py": CleanBuild, "bdist_wheel": TaggedWheel},
    ext_modules=[
        Extension("odradek.protocol._bytes", ["protocol/_bytes.c"], **OPTIONAL),
        Extension(
            "odradek.broker.environment._sockets", ["broker/environment/_sockets.c"], **OPTIONAL
        ),
        Extension(
            "odradek.broker.environment._yields",
            ["broker/environment/_yields.c"],
            extra_link_args=["-lrt"],
            **OPTIONAL,
        ),
        Extension(
            "odradek.broker.storage._fsyncs",
            ["broker/storage/_fsyncs.c"],
            extra_link_args=["-pthread"],
            **OPTIONAL,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if HAS_STABLE_ABI else {},
)
