"""A small disk with nothing but the store fills up; files are removed, and the store accepts writes again."""

import subprocess

from observe import until
from stage import Publisher, Subscriber


class Disk:
    """Unmounts a disk at the end, so that the drill's folder can be removed."""

    def __init__(self, path):
        self.path = path

    def leave(self):
        subprocess.run(["umount", "--lazy", self.path], check=False)


def run(drill):
    drill.run("mkdir disk && mount -t tmpfs -o size=2g tmpfs disk && df -h disk | tail -1")
    drill.keep(Disk(drill.folder / "disk"))
    drill.server(data=drill.folder / "disk/data")
    Subscriber("away", "drill/#").leave()
    writer = drill.keep(Publisher("drill/a", rate=50))
    drill.until_value("millrace_store_disk_free_bytes", lambda values: values and values[0] > 0)
    drill.until_no_alert()
    drill.say("FAULT another program fills the disk, down to 280 MiB")
    drill.run("head -c $(($(df --output=avail -B1 disk | tail -1) - (280 << 20))) /dev/zero > disk/other; df -h disk | tail -1")
    drill.fires("StoreNearlyFull")
    drill.run("head -c $((230 << 20)) /dev/zero > disk/more; df -h disk | tail -1")
    drill.fires("StoreRefuses")
    until(lambda: writer.refused, "no message is refused")
    drill.run("grep -E 'the store (refuses|takes)' millrace.log | tail -1 | sed 's/^[^ ]* *//'")
    drill.say("ACT   remove what fills it")
    drill.run("du -h disk/* | sort -h | tail -3; rm disk/other disk/more; df -h disk | tail -1")
    drill.ends("StoreRefuses")
    drill.ends("StoreNearlyFull")
    before = len(writer.acknowledged)
    until(lambda: len(writer.acknowledged) > before + 50, "messages are not acknowledged again")
    drill.run("grep -E 'the store (refuses|takes)' millrace.log | tail -1 | sed 's/^[^ ]* *//'")
    writer.settle()
    reader = drill.keep(Subscriber("away", "drill/#"))
    drill.all_arrived(writer, reader)
