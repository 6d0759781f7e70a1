#!/usr/bin/env python3
"""wheel.py STAGE MODULE OUT VERSION [CUDA] - writes a wheel of what `meson install` left in STAGE.

The program becomes a script of the wheel, which pip puts on PATH as it is: no interpreter starts
before it. The library lies in the module; manual, completion, examples and licences under share/.
CUDA: the major version of the toolkit that built the kernels, whose libraries the extra brings.
SOURCE_DATE_EPOCH dates the files: the same tree gives the same wheel.
"""

import base64
import csv
import hashlib
import io
import os
import pathlib
import sys
import time
import zipfile

SONAME = "libplimsoll.so.0"
CUDA_LIBRARIES = {
    "12": ["nvidia-cublas-cu12", "nvidia-nccl-cu12>=2.18", "nvidia-cuda-runtime-cu12"],
    "13": ["nvidia-cublas>=13,<14", "nvidia-nccl-cu13", "nvidia-cuda-runtime>=13,<14"],
}
METADATA = """\
Metadata-Version: 2.1
Name: plimsoll
Version: {version}
Summary: Fine-tunes language models from a YAML file, within the memory that it said it would take
License: MIT
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown
{extra}
{readme}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: plimsoll ({version})
Root-Is-Purelib: false
Tag: py3-none-linux_{machine}
"""


class Wheel:
    """A zip file, and the list of what is in it, which pip demands."""

    def __init__(self, path, info):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.info = info
        self.rows = []
        self.date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))[:6]

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, self.date)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.rows.append((name, f"sha256={digest}", len(data)))

    def close(self):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            self.rows + [(f"{self.info}/RECORD", "", "")])
        self.add(f"{self.info}/RECORD", text.getvalue().encode())
        self.zip.close()


def metadata(version, cuda):
    lines = ["Provides-Extra: parquet", "Requires-Dist: carquet ==0.7.*; extra == 'parquet'"]
    if cuda:
        lines += ["Provides-Extra: cuda"]
        lines += [f"Requires-Dist: {name}; extra == 'cuda'" for name in CUDA_LIBRARIES[cuda]]
    readme = pathlib.Path(__file__).parents[2] / "README.md"
    return METADATA.format(version=version, readme=readme.read_text(),
                           extra="".join(line + "\n" for line in lines))


def files(root):
    return sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink())


def write(stage, module, out, version, cuda):
    machine = os.uname().machine
    name = f"plimsoll-{version}"
    wheel = Wheel(out / f"{name}-py3-none-linux_{machine}.whl", f"{name}.dist-info")
    for path in files(module):
        if path.suffix != ".pyc":
            wheel.add(f"plimsoll/{path.relative_to(module)}", path.read_bytes())
    wheel.add(f"plimsoll/{SONAME}", (stage / "lib" / SONAME).read_bytes(), 0o755)
    wheel.add(f"{name}.data/scripts/plimsoll", (stage / "bin/plimsoll").read_bytes(), 0o755)
    for path in files(stage / "share"):
        wheel.add(f"{name}.data/data/{path.relative_to(stage)}", path.read_bytes())
    for path in files(stage / "share/doc/plimsoll"):
        if "LICENSE" in path.name or path.parent.name == "licences":
            wheel.add(f"{wheel.info}/licenses/{path.name}", path.read_bytes())
    wheel.add(f"{wheel.info}/METADATA", metadata(version, cuda).encode())
    wheel.add(f"{wheel.info}/WHEEL", WHEEL.format(version=version, machine=machine).encode())
    wheel.close()


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    write(*map(pathlib.Path, sys.argv[1:4]), sys.argv[4], "".join(sys.argv[5:]))
