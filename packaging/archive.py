"""Writes reproducible archives of a staged release: a tarball and a Debian package.

    python3 packaging/archive.py tarball STAGE OUT.tar.gz
    python3 packaging/archive.py deb STAGE OUT.deb PACKAGE VERSION
"""

import gzip
import hashlib
import io
import os
import sys
import tarfile
from pathlib import Path, PurePosixPath

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
# The packages, each of one program of the same name, and what they are for.
PACKAGES = {
    "undertone": """\
fine-tune language models on private text with differential privacy
 Trains, audits and documents language models with a proved (epsilon, delta).
""",
    "undertone-provider": """\
train on the noised embeddings of others
 Receives embeddings that data owners have noised, and trains models on them.
""",
}

CONTROL = """\
Package: {package}
Version: {version}
Architecture: amd64
Maintainer: The Undertone developers
Installed-Size: {kibibytes}
Depends: libc6 (>= 2.28), libgcc-s1 | libgcc1
Section: science
Priority: optional
Description: {description}"""


def entry(name: str, mode: int, size: int = 0, folder: bool = False) -> tarfile.TarInfo:
    """An archive member that depends on nothing but its arguments and the epoch."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    info.mode, info.size, info.mtime = mode, size, EPOCH
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def gzipped(content: bytes) -> bytes:
    """Compressed content, without a name or time in the header."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as out:
        out.write(content)
    return packed.getvalue()


def tar(files: dict[str, bytes], programs: set[str], prefix: str = "") -> bytes:
    """A gzipped tar of files, with the folders that contain them, in the order of their names.

    The files named in `programs` are executable. Each name in the archive starts with `prefix`.
    """
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents} - {"."}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        if prefix:
            archive.addfile(entry(prefix, 0o755, folder=True))
        for name in sorted(folders | set(files)):
            if name in folders:
                archive.addfile(entry(prefix + name, 0o755, folder=True))
                continue
            mode = 0o755 if name in programs else 0o644
            archive.addfile(entry(prefix + name, mode, len(files[name])), io.BytesIO(files[name]))
    return gzipped(raw.getvalue())


def staged(stage: Path) -> dict[str, bytes]:
    files = {path.relative_to(stage).as_posix(): path.read_bytes() for path in stage.rglob("*") if path.is_file()}
    if not files:
        sys.exit(f"packaging/archive.py: {stage} holds no files")
    return files


def tarball(stage: Path) -> bytes:
    files = {f"{stage.name}/{name}": content for name, content in staged(stage).items()}
    return tar(files, {f"{stage.name}/{program}" for program in PACKAGES})


def debian_path(name: str, package: str) -> str:
    """Where a staged file of a package is installed."""
    path = PurePosixPath(name)
    if path.parts[0] == "completions":
        return {
            "undertone.bash": "usr/share/bash-completion/completions/undertone",
            "undertone.zsh": "usr/share/zsh/vendor-completions/_undertone",
            "undertone.fish": "usr/share/fish/vendor_completions.d/undertone.fish",
        }[path.name]
    if path.parts[0] == "man":
        return f"usr/share/man/man1/{path.name}.gz"
    if name in PACKAGES:
        return f"usr/bin/{name}"
    return f"usr/share/doc/{package}/{'copyright' if name == 'LICENSE' else name}"


def debian_version(version: str) -> str:
    """The version for dpkg, to which 0.2.0-rc.1 would be later than 0.2.0."""
    return version.replace("-", "~", 1).replace("-", ".")


def deb(stage: Path, package: str, version: str) -> bytes:
    files = {}
    for name, content in staged(stage).items():
        path = debian_path(name, package)
        files[path] = gzipped(content) if path.endswith(".gz") else content
    # dpkg's own measure: files in whole KiB, and one for each folder.
    folders = {parent for name in files for parent in PurePosixPath(name).parents}
    kibibytes = sum(-(-len(content) // 1024) for content in files.values()) + len(folders)
    control = CONTROL.format(
        package=package, version=debian_version(version), kibibytes=kibibytes, description=PACKAGES[package]
    )
    sums = "".join(f"{hashlib.md5(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    # Names start with ./, as in the packages that dpkg-deb builds.
    about = tar({"control": control.encode(), "md5sums": sums.encode()}, set(), prefix="./")
    data = tar(files, {f"usr/bin/{program}" for program in PACKAGES}, prefix="./")
    package = b"!<arch>\n"
    for name, content in {"debian-binary": b"2.0\n", "control.tar.gz": about, "data.tar.gz": data}.items():
        package += f"{name:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        package += b"\n" * (len(content) % 2)
    return package


def main() -> None:
    match sys.argv[1:]:
        case ["tarball", stage, out]:
            content = tarball(Path(stage))
        case ["deb", stage, out, package, version] if package in PACKAGES:
            content = deb(Path(stage), package, version)
        case _:
            sys.exit(__doc__)
    Path(out).write_bytes(content)


if __name__ == "__main__":
    main()
