"""A pod is killed soon after each start, as the kernel does it for want of memory; the cause ends, and it runs on."""

PROMETHEUS = "curl -sG http://127.0.0.1:9090/api/v1/query --data-urlencode"
STARTS = 'changes(process_start_time_seconds{job="millrace"}[150s])'


def run(drill):
    server = drill.server()
    drill.until_value(STARTS, lambda values: values == [0])
    drill.until_no_alert()
    drill.say("FAULT kill -9 of the pod, three times, soon after its start; a supervisor starts it again")
    for number in (1, 2, 3):
        server.kill()
        server.start()
        # Each start has to be scraped to be counted.
        drill.until_value(STARTS, lambda values, number=number: values and values[0] >= number)
    drill.fires("PodRestarts")
    drill.run("grep -c 'HTTP is open' millrace.log")
    drill.run("grep -cE 'ERROR|panic|millrace:' millrace.log", fails=True)
    drill.run(f"{PROMETHEUS} 'query=process_resident_memory_bytes{{job=\"millrace\"}}'")
    drill.run(f"{PROMETHEUS} 'query=count by (version, revision) (millrace_build_info)'")
    drill.say("ACT   end the cause: nobody kills it any more")
    drill.ends("PodRestarts")
    drill.until_value('time() - process_start_time_seconds{job="millrace"}', lambda values: values and values[0] > 100)
    drill.check("it runs, and has for most of the window", server.is_well().strip() == "ok")
