"""A server uses up its open files; it is drained, and starts again with a higher limit."""

import resource
import signal
import socket

# The server may open this many files, and uses up to seven eighths of them for clients.
FILES = 2048
CONNECT = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04"


def connect(number):
    sock = socket.create_connection(("127.0.0.1", 1883))
    sock.sendall(CONNECT + b"%04d" % number)
    assert sock.recv(4) == b"\x20\x02\x00\x00"
    return sock


def run(drill):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = drill.server("--drain-max-s", "2", before=["prlimit", f"--nofile={FILES}:{FILES}"])
    drill.until_value('process_max_fds{job="millrace"}', lambda values: values == [FILES])
    drill.until_no_alert()
    drill.say(f"FAULT connections come to a server that may open {FILES} files")
    clients = []
    used = drill.values('process_open_fds{job="millrace"}')[0]
    while used + len(clients) < 0.85 * FILES:
        clients.append(connect(len(clients)))
    drill.fires("OpenFilesNearlyOut")
    drill.query('process_open_fds{job="millrace"} / process_max_fds{job="millrace"}')
    drill.query('process_resident_memory_bytes{job="millrace"} / on (instance) millrace_connections_open')
    drill.run(f"grep 'open files' /proc/{server.process.pid}/limits")
    drill.say("ACT   raise the limit, and start the server again by draining")
    server.command = server.command[2:]
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    server.start()
    for number, client in enumerate(clients):
        client.close()
        clients[number] = drill.keep(connect(number))
    drill.run(f"grep 'open files' /proc/{server.process.pid}/limits")
    drill.ends("OpenFilesNearlyOut")
    drill.until_value("sum(millrace_clients_connected)", lambda values: values == [len(clients)])
    drill.query('process_open_fds{job="millrace"} / process_max_fds{job="millrace"}')
