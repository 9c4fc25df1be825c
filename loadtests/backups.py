#!/usr/bin/env python3
"""Backs up a filled store and restores it: equal exports, a disk that fills up, and broken backups, which must be refused.

    loadtests/backups.py --millrace target/release/millrace
    loadtests/backups.py --millrace ... --folder FOLDER      backs up FOLDER/source, which loadtests/migrate.py has filled

A damaged backup must be refused, or restore to equal exports where the damage hit nothing. It runs in its own mount namespace, in
which a small tmpfs is the disk that fills up.
"""

import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import stored_data
from server import serving

ALONE = "BACKUPS_ALONE"
# The small disk has room for a part of the backup only.
SMALL_PART = 0.4
FLIPS = 40
ADVICE = r"restore another backup|use the version that wrote it|name the folder"
SECONDS_MAX = 3600


def alone():
    """Runs this program again in its own mount namespace."""
    if ALONE in os.environ:
        return
    for how in (["unshare", "-m"], ["unshare", "-rm"]):
        if shutil.which("unshare") and not subprocess.call([*how, "true"], stderr=subprocess.DEVNULL):
            os.execvpe("unshare", [*how, sys.executable, *sys.argv], os.environ | {ALONE: "1"})
    sys.exit("SKIPPED: backups on a disk that fills up: a mount namespace needs unshare and the right to make one")


class Program:
    def __init__(self, path):
        self.path = path

    def run(self, *words):
        """Exit code, output, and seconds that the command took."""
        began = time.monotonic()
        done = subprocess.run([self.path, *words], capture_output=True, text=True, timeout=SECONDS_MAX)
        said = done.stdout + done.stderr
        assert "panicked" not in said, f"millrace {' '.join(words)} panicked: {said[-800:]}"
        return done.returncode, said, time.monotonic() - began

    def succeeds(self, *words):
        code, said, seconds = self.run(*words)
        assert code == 0, f"millrace {' '.join(words)} ended with {code}: {said[-800:]}"
        return seconds

    def refuses(self, expected, *words):
        code, said, _ = self.run(*words)
        assert code == 1, f"millrace {' '.join(words)} ended with {code}: {said[-800:]}"
        assert re.search(expected, said), f"millrace {' '.join(words)} does not say {expected!r}: {said[-800:]}"
        return said.strip().splitlines()[-1]


@contextlib.contextmanager
def small_disk(at, size_mb):
    """A file system of this size; the function that it gives changes the size."""
    pathlib.Path(at).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", at], check=True)
    try:
        yield lambda more_mb: subprocess.run(["mount", "-o", f"remount,size={more_mb}m", at], check=True)
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def full_disk(program, folder, port, data, backup, wanted):
    size_mb = stored_data.size_mb(backup)
    room = "make room"
    with small_disk(f"{folder}/small", int(size_mb * SMALL_PART) + 1) as resize:
        said = program.refuses(room, "backup", f"{folder}/small/copy", "--data-dir", data)
        print(f"a backup on a disk that fills up is refused: {said}")
        assert not pathlib.Path(f"{folder}/small/copy").exists(), "a backup that failed looks like one that is whole"
        assert stored_data.publish(port, [("still/here", b"1")], False) == 1
        assert not pathlib.Path(f"{folder}/small/copy.partial").exists(), "a backup that failed still takes its room"
        # As a backup leaves it that is killed. It may have no keys yet, so a restore from it would be an empty store.
        shutil.copytree(backup, f"{folder}/killed.partial")
        said = program.refuses("a part of a backup", "restore", f"{folder}/killed.partial", "--data-dir", f"{folder}/from-partial")
        print(f"a restore from the part of a backup is refused: {said}")
        shutil.rmtree(f"{folder}/killed.partial")
        said = program.refuses(room, "restore", backup, "--data-dir", f"{folder}/small/restored")
        print(f"a restore on a disk that fills up is refused: {said}")
        assert not pathlib.Path(f"{folder}/small/restored").exists(), "a restore that failed looks like one that is whole"
        resize(int(size_mb * 3) + 64)
        program.succeeds("backup", f"{folder}/small/copy", "--data-dir", data)
        program.succeeds("restore", f"{folder}/small/copy", "--data-dir", f"{folder}/small/restored")
        assert stored_data.export(program.path, f"{folder}/small/restored") == wanted, "the backup after a full disk differs"
    print("with room the same commands made a whole backup, and restored it")


def damages(backup, seed):
    """Names, and functions that damage a copy of the backup."""
    names = [str(it.relative_to(backup)) for it in sorted(pathlib.Path(backup).rglob("*")) if it.is_file() and it.stat().st_size]
    largest = max(names, key=lambda name: pathlib.Path(backup, name).stat().st_size)
    yield "its largest file is gone", lambda copy: (copy / largest).unlink()
    yield "its largest file is cut", lambda copy: os.truncate(copy / largest, (copy / largest).stat().st_size // 2)
    yield "its largest file is empty", lambda copy: os.truncate(copy / largest, 0)
    yield "it has no format", lambda copy: (copy / "format").unlink()
    yield "its format is newer", lambda copy: (copy / "format").write_text("millrace-store 999\n")
    yield "its format is none", lambda copy: (copy / "format").write_bytes(os.urandom(20))
    dice = random.Random(seed)
    for number in range(FLIPS):
        # Half of them in the largest file, the others anywhere.
        name = largest if number % 2 else dice.choice(names)
        at = dice.randrange(pathlib.Path(backup, name).stat().st_size)

        def flip(copy, name=name, at=at, bit=1 << dice.randrange(8)):
            with open(copy / name, "r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ bit]))

        yield f"a bit of {name} at byte {at} is flipped", flip


def broken(program, folder, backup, wanted, seed):
    copy, target = pathlib.Path(f"{folder}/broken"), f"{folder}/from-broken"
    refused, harmless, unclear, sentences = 0, [], [], {}
    for name, damage in damages(backup, seed):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(backup, copy)
        damage(copy)
        code, said, _ = program.run("restore", str(copy), "--data-dir", target)
        if code == 0:
            assert stored_data.export(program.path, target) == wanted, f"{name}: it is restored, and has other data"
            harmless.append(name)
            shutil.rmtree(target)
            continue
        assert code == 1, f"{name}: millrace restore ended with {code}: {said[-800:]}"
        assert not pathlib.Path(target).exists(), f"{name}: a restore that failed looks like one that is whole"
        shutil.rmtree(f"{target}.partial", ignore_errors=True)
        sentence = said.strip().splitlines()[-1]
        if not re.search(ADVICE, sentence):
            unclear.append(f"{name}: {sentence}")
        sentences.setdefault(re.sub(r"\d+", "N", sentence)[:60], sentence)
        refused += 1
    for sentence in sentences.values():
        print(f"  {sentence}")
    print(f"{refused} broken backups refused; {len(harmless)} flipped bits hit nothing, and the restored store is equal")
    assert not unclear, "a refusal does not say what to do:\n  " + "\n  ".join(unclear)
    assert refused > FLIPS // 4, "nearly all damage went unseen, so this shows nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True, help="the program")
    parser.add_argument("--retained", type=int, default=100_000, help="retained messages")
    parser.add_argument("--sessions", type=int, default=1_000, help="sessions with queues")
    parser.add_argument("--folder", help="an existing folder with a filled store, source; broken backups are not tried on it")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="which bits are flipped")
    args = parser.parse_args()
    alone()
    program = Program(str(pathlib.Path(args.millrace).resolve()))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        data, backup, restored = f"{args.folder or folder}/source", f"{folder}/backup", f"{folder}/restored"
        with serving(program.path, data=data) as (port, _, _):
            if not args.folder:
                stored_data.fill(port, args.retained, args.sessions)
            seconds = program.succeeds("backup", backup, "--data-dir", data)
        print(f"backed up a running server in {seconds:.1f} s: {stored_data.size_mb(data):.0f} MB, and the backup has {stored_data.size_mb(backup):.0f} MB")
        print(f"restored in {program.succeeds('restore', backup, '--data-dir', restored):.1f} s", flush=True)
        wanted = stored_data.export(program.path, data)
        stored_data.check_export(wanted, args.retained, args.sessions)
        assert stored_data.export(program.path, restored) == wanted, "the exports of the store and of the restored one differ"
        print("equal exports of the store and the restored one", flush=True)
        with serving(program.path, data=data) as (port, _, _):
            # The commands ask the server there; it comes after the ports.
            while not pathlib.Path(data, "admin.sock").exists():
                time.sleep(0.01)
            full_disk(program, folder, port, data, backup, wanted)
        if not args.folder:
            print(f"seed {args.seed}", flush=True)
            broken(program, folder, backup, wanted, args.seed)
    print("check-backup: passed")


if __name__ == "__main__":
    sys.exit(main())
