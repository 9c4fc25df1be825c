"""Three thousand clients come at once to a server that takes a hundred a second; the server admits all of them in turn."""

import asyncio
import threading

CLIENTS = 3000
CONNECT = bytes.fromhex("1010") + b"\x00\x04MQTT\x04\x02\x00\x00\x00\x04"


async def client(number, connected):
    """Comes again after a refusal, as clients do."""
    packet = CONNECT + f"{number:04}".encode()
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", 1883)
            writer.write(packet)
            answer = await reader.readexactly(4)
            if answer == b"\x20\x02\x00\x00":
                connected.append(writer)
                return
            writer.close()
        except OSError:
            pass
        except asyncio.IncompleteReadError:
            pass
        await asyncio.sleep(1)


async def storm(connected):
    await asyncio.gather(*(client(number, connected) for number in range(CLIENTS)))


def run(drill):
    drill.server("--connects-per-second-max", "100", "--connects-burst", "100", "--connects-waiting-max", "500")
    drill.until_no_alert()
    drill.say(f"FAULT {CLIENTS} clients connect at once")
    connected, loop = [], asyncio.new_event_loop()
    crowd = threading.Thread(target=lambda: loop.run_until_complete(storm(connected)), daemon=True)
    crowd.start()
    drill.fires("MassReconnect")
    drill.run(query('sum(rate(millrace_connects_total[10s]))'))
    drill.run(query('sum by (reason) (rate(millrace_connects_refused_total[10s])) > 0'))
    drill.say("ACT   wait: every client has its turn")
    drill.until_value("sum(millrace_clients_connected)", lambda values: values == [CLIENTS])
    crowd.join(30)
    drill.ends("MassReconnect")
    drill.check(f"{len(connected)} of {CLIENTS} clients are connected", len(connected) == CLIENTS)


def query(expr):
    return f"curl -sG http://127.0.0.1:9090/api/v1/query --data-urlencode '{'query=' + expr}' | python3 -m json.tool | grep -A1 -E 'reason|value|[0-9]\"'"
