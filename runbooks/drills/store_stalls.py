"""The disk takes the store's tables too slowly, so commits wait for flushes; the cause ends, and the stalls with it."""

from stage import Publisher, Subscriber

# The drill slows the syncs of tables with these numbers, and makes fewer of them.
TABLES_MAX = 500
STALLS = "rate(millrace_store_stall_seconds_total[10s])"


def run(drill):
    server = drill.server()
    # The backlog of this session makes the store write tables. A limit trims the backlog, so the disk does not fill up.
    Subscriber("away", "bulk/#").leave()
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writer = drill.keep(Publisher("drill/a", rate=20))
    bulk = [drill.keep(Publisher(f"bulk/{name}", rate=100, size=100_000)) for name in "ab"]
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 40)
    drill.until_no_alert()
    drill.say("FAULT the sync of each table takes 15 s longer; those of journals and folders stay fast")
    tables = [server.data / f"tables/keyspaces/1/tables/{number}" for number in range(TABLES_MAX)]
    slow = drill.break_syncs(server, "delay_exit=15000000", tables)
    drill.fires("StoreStalls")
    drill.query(STALLS)
    drill.query("millrace_store_unflushed_memtables")
    drill.query("millrace_store_queue_bytes")
    drill.query("topk(5, broker:millrace_messages:rate5m)")
    drill.say("ACT   end what slows the disk")
    slow.stop()
    drill.ends("StoreStalls")
    drill.query(STALLS)
    for publisher in (writer, *bulk):
        publisher.settle()
    drill.all_arrived(writer, reader)
