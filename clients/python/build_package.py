"""Builds the package by the standard library alone, so that pip installs it from a clone without a network.

It has the hooks of PEP 517 and PEP 660, and the metadata of pyproject.toml. The same files make the same bytes.
"""

import base64
import csv
import gzip
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
FIELDS = dict(re.findall(r'^([a-z-]+) = "(.*)"$', PROJECT, re.MULTILINE))
NAME = "{name}-{version}".format(**FIELDS)
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: {description}
License-Expression: {license}
Requires-Python: {requires-python}
""".format(**FIELDS)
METADATA += "".join(f"Classifier: {each}\n" for each in re.findall('"([^"]+ :: [^"]+)"', PROJECT))
METADATA += "Description-Content-Type: text/markdown\n\n" + (ROOT / "README.md").read_text("utf-8")
WHEEL = "Wheel-Version: 1.0\nGenerator: build_package\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, _read(ROOT / "src", _sources()))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {"fencegate.pth": f"{ROOT / 'src'}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    files = _read(ROOT, [*_sources(), *(ROOT / each for each in ("README.md", "build_package.py", "pyproject.toml"))])
    files["PKG-INFO"] = METADATA.encode()
    sdist = pathlib.Path(sdist_directory, f"{NAME}.tar.gz")
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, content in sorted(files.items()):
                entry = tarfile.TarInfo(f"{NAME}/{name}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return sdist.name


def _sources():
    return [each for each in (ROOT / "src" / FIELDS["name"]).rglob("*") if each.suffix in (".py", ".typed")]


def _read(folder, paths):
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in paths}


def _wheel(folder, files):
    info = f"{NAME}.dist-info"
    files = dict(sorted(files.items()))
    files[f"{info}/METADATA"] = METADATA.encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([f"{info}/RECORD", "", ""])
    files[f"{info}/RECORD"] = record.getvalue().encode()
    wheel = pathlib.Path(folder, f"{NAME}-py3-none-any.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980, and readable
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return wheel.name
