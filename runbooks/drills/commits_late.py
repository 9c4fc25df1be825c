"""Each sync of the store's disk takes a fifth of a second longer; the cause ends, and commits are in time again."""

from stage import Publisher, Subscriber

LATE = "region:commit_errors:ratio_rate5m"
P99 = "histogram_quantile(0.99, sum by (le) (rate(millrace_message_commit_seconds_bucket[10s])))"


def run(drill):
    server = drill.server()
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writer = drill.keep(Publisher("drill/a", rate=50))
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 10)
    drill.until_no_alert()
    drill.say("FAULT each sync of the store's disk takes 200 ms longer")
    slow = drill.break_syncs(server, "delay_exit=200000")
    drill.fires("CommitsLate")
    drill.query(LATE)
    drill.query(P99)
    drill.query("rate(millrace_store_stall_seconds_total[10s])")
    drill.query("millrace_store_queue_bytes")
    drill.say("ACT   end what slows the disk")
    slow.stop()
    drill.ends("CommitsLate")
    drill.query(LATE)
    drill.all_arrived(writer, reader)
