"""Prints a software bill of materials (CycloneDX 1.5) of the released programs.

    python3 packaging/sbom.py TARGET-TRIPLE

The components are those pinned by Cargo.lock and resolved by `cargo metadata` for the target,
without build and test dependencies.
"""

import json
import subprocess
import sys
from datetime import datetime, timezone
from os import environ

RELEASED = ("undertone-cli", "undertone-provider", "undertone-python")


def metadata(triple: str) -> dict:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def linked(graph: dict) -> set[str]:
    """The released packages and their transitive normal dependencies."""
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    ahead = [package["id"] for package in graph["packages"] if package["name"] in RELEASED]
    reached: set[str] = set()
    while ahead:
        package = ahead.pop()
        if package in reached:
            continue
        reached.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                ahead.append(dependency["pkg"])
    return reached


def component(package: dict) -> dict:
    name, version = package["name"], package["version"]
    described = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package.get("license"):
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return described


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    graph = metadata(sys.argv[1])
    reached = linked(graph)
    packages = sorted((p for p in graph["packages"] if p["id"] in reached), key=lambda p: (p["name"], p["version"]))
    version = next(p["version"] for p in packages if p["name"] == "undertone-cli")
    made = datetime.fromtimestamp(int(environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": "undertone", "name": "undertone", "version": version},
        },
        "components": [component(package) for package in packages],
    }
    json.dump(bill, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
