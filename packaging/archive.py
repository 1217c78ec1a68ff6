"""Writes reproducible archives of a staged release: a tarball and a Debian package.

    python3 packaging/archive.py tarball STAGE OUT.tar.gz
    python3 packaging/archive.py deb STAGE OUT.deb VERSION
"""

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

CONTROL = """\
Package: undertone
Version: {version}
Architecture: amd64
Maintainer: The Undertone developers
Installed-Size: {kilobytes}
Depends: libc6 (>= 2.28), libgcc-s1
Section: science
Priority: optional
Description: fine-tune language models on private text with differential privacy
 Trains, audits and documents language models with a proved (epsilon, delta).
"""


def entry(name: str, mode: int, size: int = 0, folder: bool = False) -> tarfile.TarInfo:
    """An archive member that depends only on its arguments and the epoch."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    info.mode, info.size, info.mtime = mode, size, EPOCH
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def tar(files: dict[str, bytes]) -> bytes:
    """A gzipped tar of files and the folders that contain them, sorted by name."""
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(folders | set(files)):
            if name in folders:
                archive.addfile(entry(name, 0o755, folder=True))
                continue
            is_program = Path(name).name in ("undertone", "undertone-provider")
            archive.addfile(entry(name, 0o755 if is_program else 0o644, len(files[name])), io.BytesIO(files[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=EPOCH) as out:
        out.write(raw.getvalue())
    return packed.getvalue()


def staged(stage: Path) -> dict[str, bytes]:
    return {str(path.relative_to(stage)): path.read_bytes() for path in stage.rglob("*") if path.is_file()}


def tarball(stage: Path) -> bytes:
    return tar({f"{stage.name}/{name}": content for name, content in staged(stage).items()})


def debian_path(name: str) -> str:
    """Where a staged file is installed."""
    path = Path(name)
    if path.parts[0] == "completions":
        return {
            "undertone.bash": "usr/share/bash-completion/completions/undertone",
            "undertone.zsh": "usr/share/zsh/vendor-completions/_undertone",
            "undertone.fish": "usr/share/fish/vendor_completions.d/undertone.fish",
        }[path.name]
    if path.parts[0] == "man":
        return f"usr/share/man/man1/{path.name}"
    if name in ("undertone", "undertone-provider"):
        return f"usr/bin/{name}"
    return f"usr/share/doc/undertone/{'copyright' if name == 'LICENSE' else name}"


def deb(stage: Path, version: str) -> bytes:
    files = {debian_path(name): content for name, content in staged(stage).items()}
    kilobytes = sum(len(content) for content in files.values()) // 1024
    control = CONTROL.format(version=version, kilobytes=kilobytes).encode()
    members = {"debian-binary": b"2.0\n", "control.tar.gz": tar({"control": control}), "data.tar.gz": tar(files)}
    package = b"!<arch>\n"
    for name, content in members.items():
        package += f"{name:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        package += b"\n" * (len(content) % 2)
    return package


def main() -> None:
    match sys.argv[1:]:
        case ["tarball", stage, out]:
            content = tarball(Path(stage))
        case ["deb", stage, out, version]:
            content = deb(Path(stage), version)
        case _:
            sys.exit(__doc__)
    Path(out).write_bytes(content)


if __name__ == "__main__":
    main()
