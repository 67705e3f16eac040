"""Packs a folder as a wheel for this machine: `cargo xtask wheel` calls it. There is nothing to compile, and so no build backend.

    python wheel.py FOLDER OUT VERSION
"""

import base64
import hashlib
import os
import sys
import sysconfig
import zipfile

METADATA = """\
Metadata-Version: 2.4
Name: zen-edge
Version: {version}
Summary: Which task a prompt is and which model should answer it, on this machine
License-Expression: Apache-2.0
Requires-Python: >=3.9
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: zen-edge
Root-Is-Purelib: false
Tag: {tag}
"""


def main():
    folder, out, version = sys.argv[1:]
    # The library is for this platform, and for any Python: it is loaded by ctypes.
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    info = f"zen_edge-{version}.dist-info"
    files = {}
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder).replace(os.sep, "/")] = file.read()
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    record = [f"{info}/RECORD,,"]
    for name, file in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(file).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(file)}")
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    wheel = os.path.join(out, f"zen_edge-{version}-{tag}.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files.items():
            # The same bytes whenever it is packed.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), file, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
