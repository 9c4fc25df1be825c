"""The kernel says that the clock is off by a fifth of a second, then that it is in sync again. strace answers in the kernel's place."""

from observe import program, until

# The field `offset` of struct timex, in microseconds, after the field `modes` and its padding.
MODES = "00" * 8


def answers(drill, offset_us):
    """Whatever the real clock is like, the exporter of this machine reports this. Other calls are not traced, so it stays fast."""
    strace = program("strace", how="apt-get install strace")
    poke = MODES + offset_us.to_bytes(8, "little").hex()
    drill.observe.end("host")
    drill.observe.host = [
        strace, "-f", "--seccomp-bpf", "-e", "trace=adjtimex", "-e", f"inject=adjtimex:retval=0:poke_exit=@arg1={poke}", "-o", drill.folder / "clock",
    ]
    drill.observe.start_host()
    drill.until_value("node_timex_offset_seconds", lambda values: values == [offset_us / 1e6])


def run(drill):
    drill.server()
    answers(drill, 0)
    until(lambda: "ClockSkew" not in drill.observe.alerts(), "ClockSkew fires before the fault")
    drill.until_no_alert()
    drill.say("FAULT the clock is off by 200 ms")
    answers(drill, 200_000)
    drill.fires("ClockSkew")
    drill.query("node_timex_offset_seconds")
    drill.say("ACT   drain the pod, set the clock, start the pod: here the answer of the kernel changes")
    answers(drill, 0)
    drill.ends("ClockSkew")
    drill.query("node_timex_offset_seconds")
    drill.query("node_timex_sync_status")
