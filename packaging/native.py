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
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def zipped(stage: Path, out: Path) -> None:
    """Zips a staged release, with the time of the commit for every file."""
    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(out, "w") as packed:
        for path in sorted(path for path in stage.rglob("*") if path.is_file()):
            name = path.relative_to(stage.parent).as_posix()
            member = zipfile.ZipInfo(name, date)
            packed.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED)


def complete(program: Path, stage: Path) -> None:
    """Adds the completions and man pages that a program generates. It must run on this machine."""
    folder = stage / "completions"
    folder.mkdir()
    for shell in ("powershell",) if program.suffix else ("bash", "zsh", "fish"):
        made = subprocess.run([program, "self", "completions", shell], check=True, stdout=subprocess.PIPE)
        (folder / f"undertone.{shell}").write_bytes(made.stdout)
    if not program.suffix:
        (stage / "man").mkdir()
        subprocess.run([program, "self", "man", "--out", stage / "man"], check=True)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    triple = sys.argv[1]
    os.chdir(ROOT)
    # Times in archives are those of the commit.
    if "SOURCE_DATE_EPOCH" not in os.environ:
        commit = subprocess.run(["git", "log", "-1", "--format=%ct"], check=True, stdout=subprocess.PIPE, text=True)
        os.environ["SOURCE_DATE_EPOCH"] = commit.stdout.strip()
    import archive  # Reads SOURCE_DATE_EPOCH.

    if triple.endswith("-msvc"):
        # Windows does not come with Visual C++'s runtime library, so the programs contain it.
        os.environ["RUSTFLAGS"] = f"{os.environ.get('RUSTFLAGS', '')} -C target-feature=+crt-static".strip()
    packages = ["-p", "undertone-cli", "-p", "undertone-provider", "--features", "undertone-cli/postgres"]
    command = ["cargo", "build", "--profile", "dist", "--locked", "--target", triple, *packages]
    subprocess.run(command, check=True)
    version = re.search(r'^version = "(.*)"$', Path("Cargo.toml").read_text("utf-8"), re.MULTILINE)[1]
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    out = target / "packages"
    out.mkdir(parents=True, exist_ok=True)
    suffix = ".exe" if "windows" in triple else ""
    for program in archive.PACKAGES:
        stage = target / "stage" / f"{program}-{version}-{triple}"
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(parents=True)
        shutil.copy(target / triple / "dist" / (program + suffix), stage)
        for document in ("README.md", "LICENSE", "CHANGELOG.md"):
            shutil.copy(document, stage)
        if program == "undertone":
            complete(stage / (program + suffix), stage)
        if suffix:
            zipped(stage, out / f"{stage.name}.zip")
        else:
            (out / f"{stage.name}.tar.gz").write_bytes(archive.tarball(stage))


if __name__ == "__main__":
    main()
