#!/usr/bin/env python3
"""Gets the other allocators, as libraries to preload, and writes their list: DIRECTORY/manifest.json.

peers.toml says where each comes from.  The sources and builds of the peers are below DIRECTORY and stay there; a peer whose entry in
peers.toml has not changed is not built again.  Each library is tried (probe.c) before it is listed.  A peer that cannot be had is
left out, with the reason printed.  Exit status 1 if there is none at all, or, with --only, if one of the named peers is missing.
"""
import argparse
import contextlib
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = ("name", "title", "version", "source", "library")
TAIL = 15  # lines of a failed command's output that are shown


class Absent(Exception):
    """A peer that cannot be had here, and why."""


def run(command, where, log, **variables):
    """Runs a command with its output in the file `log`."""
    with open(log, "ab") as out:
        try:
            done = subprocess.run(command, cwd=where, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        except OSError as error:
            raise Absent(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        last = pathlib.Path(log).read_text(errors="replace").splitlines()[-TAIL:]
        raise Absent(f"{command[0]} failed; {log} ends:\n    " + "\n    ".join(last))


def answer(*command):
    """What a command prints, or None if it fails or is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def fetch(crate, directory):
    """Returns the directory of the crate's sources; cargo checks what it fetches against the registry's checksum."""
    name, version = crate.split("@")
    project = directory / "crates" / f"{name}-{version}"
    sources = project / "vendor" / name
    if not sources.is_dir():
        shutil.rmtree(project, ignore_errors=True)
        (project / "src").mkdir(parents=True)
        (project / "src" / "lib.rs").touch()
        (project / "Cargo.toml").write_text(f'[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n\n'
                                            f'[dependencies]\n{name} = "={version}"\n')
        run(["cargo", "vendor", "fetched"], project, project / "log")
        (project / "fetched").rename(project / "vendor")  # renamed last, so only complete sources have this name
    return sources


def recipe_of(peer):
    """Everything that a built peer depends on: its crate, its build script, and the files here that the script names."""
    files = [path.read_text() for path in sorted(HERE.iterdir()) if f"$here/{path.name}" in peer["how"]]
    return "\n".join([peer["crate"], peer["how"], *files])


def from_crate(peer, directory, jobs):
    home = directory / peer["name"]
    library = home / "build" / peer["library"]
    recipe, stamp = recipe_of(peer), home / "recipe"
    if not (library.exists() and stamp.exists() and stamp.read_text() == recipe):
        crate = fetch(peer["crate"], directory)
        shutil.rmtree(home, ignore_errors=True)
        (home / "build").mkdir(parents=True)
        run(["sh", "-eu", "-c", peer["how"]], home / "build", home / "log", crate=str(crate), here=str(HERE), jobs=str(jobs))
        if not library.exists():
            raise Absent(f"{peer['how'].split()[0]} left no {library}")
        stamp.write_text(recipe)
    return {"version": peer["version"], "source": "crates.io " + peer["crate"].replace("@", " "), "library": str(library)}


def from_debian(peer):
    version = answer("dpkg-query", "--show", "--showformat", "${Version}", peer["package"])
    if not version:
        raise Absent(f"the Debian package {peer['package']} is not installed")
    multiarch = answer("cc", "-print-multiarch") or "*"
    found = glob.glob(peer["library"].format(multiarch=multiarch))
    if not found:
        raise Absent(f"{peer['package']} has no {peer['library']}")
    return {"version": version.split(":")[-1].split("-")[0], "source": f"Debian {peer['package']} {version}", "library": found[0]}


def try_out(entry, directory):
    """Runs two programs under the library: an unrelated one, and the probe."""
    for program in (["/bin/true"], [str(directory / "probe"), entry["library"]]):
        environment = os.environ | entry.get("env", {}) | {"LD_PRELOAD": entry["library"]}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
        if done.returncode != 0 or done.stderr:
            raise Absent(f"{program[0]} under {entry['library']}: exit status {done.returncode}: {done.stderr.strip()}")


def make(peer, directory, jobs):
    """Makes the peer; returns its entry for the manifest."""
    made = from_debian(peer) if "package" in peer else from_crate(peer, directory, jobs)
    entry = {field: (peer | made)[field] for field in FIELDS}
    if "env" in peer:
        entry["env"] = peer["env"]
    try_out(entry, directory)
    return entry


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=pathlib.Path, default=HERE.parent.parent / "build" / "peers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", metavar="NAME,...", help="these alone; what is built of the others stays, and stays listed")
    parser.add_argument("--set-up", action="store_true", help="install the Debian packages that these need")
    return parser.parse_args()


def chosen(peers, only):
    """The peers that --only names, in the order of the list."""
    if only is None:
        return peers
    names = only.split(",")
    unknown = [name for name in names if name not in [peer["name"] for peer in peers]]
    if unknown:
        sys.exit(f"make_peers: no peer {', '.join(unknown)}; there are {', '.join(peer['name'] for peer in peers)}")
    return [peer for peer in peers if peer["name"] in names]


def groups(peers):
    """The groups of tools/setup that the peers need; there, each Debian package is its own group."""
    return sorted({peer.get("package", "crates") for peer in peers})


def set_up(peers):
    """Installs the groups one at a time, so that one missing package does not cost the other peers."""
    for group in groups(peers):
        subprocess.run([HERE.parent.parent / "tools" / "setup", group], stdin=subprocess.DEVNULL)


def listed(directory, peers):
    """The entries of an earlier run whose peers are still known and whose libraries still exist."""
    entries = []
    with contextlib.suppress(OSError, ValueError):
        entries = json.loads((directory / "manifest.json").read_text())
    names = [peer["name"] for peer in peers]
    return {entry["name"]: entry for entry in entries if entry["name"] in names and os.path.exists(entry["library"])}


def main():
    options = arguments()
    directory = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    peers = tomllib.loads((HERE / "peers.toml").read_text())["peer"]
    asked = chosen(peers, options.only)
    if options.set_up:
        set_up(asked)
    probe = ["cc", "-O1", "-o", directory / "probe", HERE / "probe.c", "-pthread", "-ldl"]
    subprocess.run(probe, check=True)
    found = listed(directory, peers)
    for peer in asked:
        name = peer["name"]
        found.pop(name, None)
        try:
            entry = found[name] = make(peer, directory, options.jobs)
        except (Absent, subprocess.TimeoutExpired) as reason:
            print(f"{name:16} absent: {reason}", flush=True)
            continue
        print(f"{name:16} {entry['version']:14} {entry['source']}", flush=True)
    manifest = [found[peer["name"]] for peer in peers if peer["name"] in found]
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    missing = [peer["name"] for peer in asked if peer["name"] not in found]
    return int(bool(missing) if options.only else not manifest)


if __name__ == "__main__":
    sys.exit(main())
