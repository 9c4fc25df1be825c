"""The only backup agent of a FoundationDB cluster ends, so its backup stands still; the agent is started again."""

from clusters import HOW, Cluster
from observe import program
from stage import Part

# The alert waits for half an hour, so the drill divides durations by more than the usual 12.
SPEED = 60
RUNNING, BEHIND = "foundationdb_backup_running", "foundationdb_backup_behind_seconds"


def run(drill):
    cluster = Cluster(drill, machines=1, redundancy="single")
    agent, _ = program("backup_agent", how=HOW), program("fdbbackup", how=HOW)
    agent = drill.keep(Part("backup_agent", drill.folder / "agent.log", [agent, "-C", cluster.file, "--knob_http_verbose_level=0"]))
    drill.run("mkdir backups && fdbbackup start -t millrace -z -s 86400 -d file://$PWD/backups")
    drill.server(*cluster.flags)
    drill.until_value(RUNNING, lambda values: values == [1])
    drill.until_value(BEHIND, lambda values: values and values[0] < 600)
    drill.ends("BackupLate")
    drill.say("FAULT kill -9 of the backup agent")
    agent.kill()
    # The last agent's part of the status expires after two minutes.
    drill.until_value(RUNNING, lambda values: values == [0])
    drill.fires("BackupLate")
    drill.run("fdbbackup status -t millrace")
    drill.run("fdbcli --exec 'status json' | grep -E '\"(instances_running|paused|running_backup|last_restorable_seconds_behind)\"'", fails=True)
    drill.query(RUNNING)
    drill.say("ACT   start the agent, as fdbmonitor does with the database")
    agent.start()
    drill.ends("BackupLate")
    drill.query(RUNNING)
    drill.query(BEHIND)
    drill.run("fdbbackup status -t millrace", lines=3)
    said = drill.run("fdbbackup describe -d file://$(echo $PWD/backups/backup-*)")
    drill.check("the backup can be restored", "Restorable: true" in said)
