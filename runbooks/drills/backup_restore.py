"""A backup of a running server is restored into a new folder; a session continues there with what waited for it."""

from observe import until
from stage import Publisher, Server, Subscriber


def run(drill):
    server = drill.server()
    Subscriber("away", "drill/#").leave()
    writer = drill.keep(Publisher("drill/a", rate=100))
    until(lambda: len(writer.acknowledged) > 500, "messages are not acknowledged")
    drill.say("ACT   back up while messages are written")
    before = set(writer.acknowledged)
    drill.run("millrace backup backup --data-dir data")
    writer.settle()
    drill.say("FAULT the disk with the data folder is gone")
    server.kill()
    drill.run("rm -r data")
    drill.fires("PodDown")
    drill.say("ACT   restore into a new folder, look into it, start a server on it")
    drill.run("millrace restore backup --data-dir restored")
    drill.run("millrace sessions list --data-dir restored")
    drill.keep(Server(drill.folder, data=drill.folder / "restored"))
    drill.ends("PodDown")
    reader = drill.keep(Subscriber("away", "drill/#"))
    got = lambda: {int(payload) for payload in reader.got}  # noqa: E731
    until(lambda: before <= got(), "messages of before the backup did not arrive")
    drill.check(
        f"{len(before)} messages were acknowledged before the backup, and all of them arrived; "
        f"of {len(writer.acknowledged)} in all {len(got())} were in the backup",
        before <= got(),
    )
