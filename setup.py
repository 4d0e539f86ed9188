"""What `pyproject.toml` cannot say: each build begins with an empty `build/lib`.

setuptools packs everything that it finds there, also the modules of an earlier build that the
project does not have any more.
"""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class CleanBuild(build_py):
    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": CleanBuild})
