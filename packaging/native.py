"""Builds the programs on this machine for one target, and packs them as .tar.gz, or .zip on
Windows.

    python3 packaging/native.py TARGET-TRIPLE

`packaging/build` makes the packages for x86-64 Linux, which also run on older systems.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import archive  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    triple = sys.argv[1]
    os.chdir(ROOT)
    packages = ["-p", "undertone-cli", "-p", "undertone-provider"]
    subprocess.run(["cargo", "build", "--release", "--locked", "--target", triple, *packages], check=True)
    version = re.search(r'^version = "(.*)"$', Path("Cargo.toml").read_text(), re.MULTILINE)[1]
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    name = f"undertone-{version}-{triple}"
    stage, out = target / "stage" / name, target / "packages"
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    suffix = ".exe" if "windows" in triple else ""
    for program in ("undertone", "undertone-provider"):
        shutil.copy(target / triple / "release" / (program + suffix), stage)
    for document in ("README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(document, stage)
    if suffix:
        with zipfile.ZipFile(out / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(stage.iterdir()):
                packed.write(path, f"{name}/{path.name}")
    else:
        (out / f"{name}.tar.gz").write_bytes(archive.tarball(stage))


if __name__ == "__main__":
    main()
