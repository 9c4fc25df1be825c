"""Logs fill a small disk of a machine; the oldest are removed, and the alert ends."""

from observe import Missing
from store_full import Disk

MIB = 96
FREE = 'node_filesystem_avail_bytes{mountpoint=~".*/disk"} / node_filesystem_size_bytes'


def run(drill):
    # The alert leaves out tmpfs, so the disk is a file with a file system of its own.
    drill.run(f"truncate -s {MIB}M image && mkfs.ext4 -q -m 0 image && mkdir disk")
    try:
        drill.run("mount -o loop image disk && df -h disk | tail -1")
    except AssertionError as error:
        raise Missing(f"a disk of its own needs root and a loop device: {error}") from None
    drill.keep(Disk(drill.folder / "disk"))
    # The exporter shows what process 1 has mounted, so it gets a tree of processes of its own.
    drill.host = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    drill.server()
    drill.until_value(FREE, lambda values: values and values[0] > 0.5)
    drill.until_no_alert()
    drill.say("FAULT logs of a gateway fill the disk, up to 98 %")
    drill.run("n=0; while [ $(df --output=pcent disk | tr -dc 0-9) -lt 98 ]; do n=$((n + 1)); head -c 1M /dev/zero >disk/access.log.$n; done; df -h disk | tail -1")
    drill.fires("DiskNearlyFull")
    drill.query(FREE)
    drill.say("ACT   see what takes the room, and remove old logs")
    drill.run("du -xhd1 disk | sort -h | tail -2; ls disk | grep -c access.log")
    drill.run("ls -tr disk/access.log.* | head -n -20 | xargs rm; df -h disk | tail -1")
    drill.until_value(FREE, lambda values: values and values[0] > 0.2)
    drill.ends("DiskNearlyFull")
    drill.run("curl -sS http://127.0.0.1:8080/healthz")
