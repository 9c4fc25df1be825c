"""A server takes fewer connections than its tenants have devices; it is drained, and starts again with room for all."""

import signal

from observe import until
from stage import make

DEVICES, ROOM = 60, 40


def run(drill):
    server = drill.server("--connections-max", str(ROOM), "--drain-max-s", "2")
    drill.until_no_alert()
    drill.say(f"FAULT {DEVICES} devices connect to a server with connections_max = {ROOM}")
    devices = []
    for number in range(DEVICES):
        device = make(f"device-{number}", None)
        device.connect_async("127.0.0.1", 1883)
        device.loop_start()
        devices.append(device)
    try:
        drill.fires("ConnectsFail")
        drill.query("sum by (instance, reason) (rate(millrace_connects_refused_total[10s])) > 0")
        drill.query("sum by (instance, reason) (rate(millrace_connections_refused_total[10s])) > 0")
        drill.query("millrace_connections_open")
        drill.say("ACT   raise connections_max, and start the server again by draining")
        server.command[server.command.index(str(ROOM))] = "1000"
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        server.start()
        drill.until_value("sum(millrace_clients_connected)", lambda values: values == [DEVICES])
        drill.ends("ConnectsFail")
        until(lambda: all(device.is_connected() for device in devices), "devices are not connected")
        drill.check(f"all {DEVICES} devices are connected", True)
    finally:
        for device in devices:
            device.disconnect()
            device.loop_stop()
