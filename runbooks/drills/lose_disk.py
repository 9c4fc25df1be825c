"""The store's disk fails each sync with an input/output error; the last backup is restored on another disk."""

from observe import until
from stage import Publisher, Server, Subscriber


def run(drill):
    server = drill.server()
    Subscriber("away", "drill/#").leave()
    writer = drill.keep(Publisher("drill/a", rate=50))
    until(lambda: len(writer.acknowledged) > 200, "messages are not acknowledged")
    before = set(writer.acknowledged)
    drill.run("millrace backup backup --data-dir data")
    drill.until_no_alert()
    drill.say("FAULT the disk gives an input/output error for each sync")
    drill.break_syncs(server, "error=EIO")
    drill.fires("StoreRefuses")
    until(lambda: writer.refused, "no message is refused")
    drill.query("sum by (reason) (rate(millrace_store_refused_total[10s])) > 0")
    drill.run("grep -E 'the store' millrace.log | tail -2 | sed 's/^[^ ]* *//'", lines=2)
    drill.say("ACT   stop the server, restore the last backup on another disk, start it there")
    writer.over.set()
    acknowledged = set(writer.acknowledged)
    server.kill()
    drill.run("millrace restore backup --data-dir restored")
    drill.keep(Server(drill.folder, data=drill.folder / "restored"))
    drill.ends("StoreRefuses")
    reader = drill.keep(Subscriber("away", "drill/#"))
    got = lambda: {int(payload) for payload in reader.got}  # noqa: E731
    until(lambda: before <= got(), "messages of before the backup did not arrive")
    drill.check(
        f"all {len(before)} messages of before the backup arrived; {len(acknowledged - got())} that were acknowledged since are lost",
        before <= got(),
    )
    drill.run("millrace backup another --data-dir restored")
