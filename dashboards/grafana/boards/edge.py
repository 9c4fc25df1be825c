"""The dashboard of the event loops, pod by pod: connections, messages, refusals, and their costs."""

from parts import board, graph, ranking, variable

PODS = 'instance=~"$pod"'


def each(metric, by, legend):
    """The rate of a counter, with a line for each value of a label. All pods have one `job`, so `job` gives the total."""
    return f"sum by ({by}) (rate({metric}{{{PODS}}}[$__rate_interval]))", legend


def quantile(q, metric):
    return f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{{{PODS}}}[$__rate_interval])))"


def level(metric, legend):
    return f"sum({metric}{{{PODS}}})", legend


BOARD = board(
    "edge",
    "Millrace: edge",
    "Connections, messages and what they cost, pod by pod.",
    (
        "Connections",
        [
            graph(
                "Open connections",
                "short",
                "By pod.",
                (f"millrace_connections_open{{{PODS}}}", "{{instance}}"),
            ),
            graph(
                "CONNECT packets",
                "cps",
                "Accepted, and refused by reason.",
                each("millrace_connects_total", "job", "accepted"),
                each("millrace_connects_refused_total", "reason", "refused: {{reason}}"),
                each("millrace_connects_refused_at_once_total", "job", "refused, of these without delay"),
            ),
            graph(
                "Clients by protocol",
                "short",
                "Connected clients, by version of MQTT.",
                (f"sum by (version) (millrace_protocol_clients_connected{{{PODS}}})", "MQTT {{version}}"),
                stack=True,
            ),
            graph(
                "CONNECT packets by protocol",
                "cps",
                "Accepted, by version of MQTT.",
                each("millrace_protocol_connects_total", "version", "MQTT {{version}}"),
                stack=True,
            ),
            graph(
                "Ends of connections",
                "cps",
                "By reason.",
                each("millrace_disconnects_total", "reason", "{{reason}}"),
                stack=True,
            ),
            graph(
                "Closed before they belonged to a broker",
                "cps",
                "By reason.",
                each("millrace_connections_refused_total", "reason", "{{reason}}"),
                stack=True,
            ),
            graph(
                "Accepted connections",
                "cps",
                "TCP connections, TLS handshakes of the server's own listeners, and pauses for want of files or memory.",
                each("millrace_connections_accepted_total", "job", "accepted"),
                each("millrace_tls_handshakes_total", "kind", "TLS: {{kind}}"),
                each("millrace_accepts_failed_total", "job", "pauses of a listener"),
            ),
            graph(
                "Time of a CONNECT",
                "s",
                "The 99th percentile of each step of an accepted CONNECT; connack is the whole time until the CONNACK.",
                (
                    "histogram_quantile(0.99, sum by (le, step) "
                    f"(rate(millrace_connect_seconds_bucket{{{PODS}}}[$__rate_interval])))",
                    "{{step}}",
                ),
            ),
            graph(
                "Sessions",
                "short",
                "Connected or not, as this pod knows them.",
                (f"sum by (instance) (millrace_sessions{{{PODS}}})", "{{instance}}"),
            ),
            graph(
                "Open brokers",
                "short",
                "Those in memory. One without clients is closed after broker_idle_s.",
                (f"millrace_brokers_open{{{PODS}}}", "{{instance}}"),
            ),
            graph(
                "Subscriptions",
                "short",
                "Of sessions in memory.",
                (f"sum by (instance) (millrace_subscriptions{{{PODS}}})", "{{instance}}"),
            ),
        ],
    ),
    (
        "Messages",
        [
            graph(
                "Messages in",
                "cps",
                "By quality of service.",
                each("millrace_messages_received_total", "qos", "QoS {{qos}}"),
                stack=True,
            ),
            graph(
                "Messages in by protocol",
                "cps",
                "By version of MQTT.",
                each("millrace_protocol_messages_received_total", "version", "MQTT {{version}}"),
                stack=True,
            ),
            graph("Messages out", "cps", "By pod.", each("millrace_messages_sent_total", "instance", "{{instance}}")),
            graph(
                "Time to deliver",
                "s",
                "From reading a PUBLISH until it is in the outbound buffer of a subscriber of the same pod.",
                (quantile(0.5, "millrace_edge_delivery_seconds"), "p50"),
                (quantile(0.99, "millrace_edge_delivery_seconds"), "p99"),
            ),
            graph(
                "Dropped",
                "cps",
                "Not delivered to a subscriber, by reason.",
                each("millrace_messages_dropped_total", "reason", "{{reason}}"),
                stack=True,
            ),
            graph(
                "Refused",
                "cps",
                "PUBLISH and SUBSCRIBE packets, by reason.",
                each("millrace_publishes_refused_total", "reason", "publish: {{reason}}"),
                each("millrace_subscribes_refused_total", "reason", "subscribe: {{reason}}"),
            ),
            graph(
                "Back-pressure",
                "cps",
                "How often a publisher was not read because its receivers or the store were behind.",
                each("millrace_publisher_pauses_total", "instance", "pauses on {{instance}}"),
            ),
            graph(
                "Limits of tenants reached",
                "cps",
                "By limit.",
                each("millrace_limits_reached_total", "limit", "{{limit}}"),
            ),
        ],
    ),
    (
        "Traces and builds",
        [
            graph(
                "Messages chosen for a trace",
                "cps",
                "Followed, or left out because of traces_per_second_max or because the queue of spans was full.",
                each("millrace_traces_total", "result", "{{result}}"),
                width=12,
            ),
            graph(
                "Builds",
                "short",
                "Pods by the commit of their build. Two lines are an upgrade.",
                (f"count by (version, revision) (millrace_build_info{{{PODS}}})", "{{version}}, {{revision}}"),
                width=12,
            ),
        ],
    ),
    (
        "What it costs",
        [
            graph(
                "CPU",
                "percentunit",
                "100 % is one core.",
                (f"rate(process_cpu_seconds_total{{job=\"millrace\", {PODS}}}[$__rate_interval])", "{{instance}}"),
            ),
            graph(
                "Resident memory",
                "bytes",
                "By pod.",
                (f"process_resident_memory_bytes{{job=\"millrace\", {PODS}}}", "{{instance}}"),
            ),
            graph(
                "Open files",
                "short",
                "Each connection is one.",
                (f"process_open_fds{{job=\"millrace\", {PODS}}}", "{{instance}}"),
            ),
            graph(
                "Turns of the event loops",
                "cps",
                "And how often one loop woke another.",
                each("millrace_loop_turns_total", "instance", "turns on {{instance}}"),
                each("millrace_loop_wakes_total", "instance", "wakes on {{instance}}"),
            ),
            graph(
                "Time of a turn",
                "s",
                "How long one turn of an event loop takes; its clients wait meanwhile. The dashed line is 20 ms, the limit of make hostile-soak.",
                (quantile(0.5, "millrace_edge_turn_seconds"), "p50"),
                (quantile(0.999, "millrace_edge_turn_seconds"), "p99.9"),
                line=0.02,
            ),
            graph(
                "Most work of a turn",
                "short",
                "Since the server started, in units of about 0.1 µs. Edge decision 0001 explains the work budget that bounds it.",
                (f"millrace_edge_turn_work_max{{{PODS}}}", "{{instance}}"),
            ),
            graph(
                "Memory pressure",
                "short",
                "What is given up for want of memory: 0 nothing, 1 QoS 0, 2 new connections, 3 speed of publishers.",
                (f"millrace_memory_pressure{{{PODS}}}", "{{instance}}"),
                most=3,
            ),
            graph(
                "Waiting between event loops",
                "bytes",
                "Above mailbox_bytes_max publishers are not read.",
                (f"millrace_mailbox_bytes{{{PODS}}}", "{{instance}}"),
            ),
            graph(
                "Waiting for sockets",
                "bytes",
                "In outbound buffers, because clients read too slowly. Each may have outbound_hard_bytes.",
                (f"millrace_outbound_bytes{{{PODS}}}", "{{instance}}"),
            ),
            graph(
                "Incomplete packets",
                "bytes",
                "Beyond the first 4 KiB of each connection. input_memory_max limits them.",
                (f"millrace_input_held_bytes{{{PODS}}}", "{{instance}}"),
            ),
            graph(
                "Memory of sessions",
                "bytes",
                "Messages that wait or are not acknowledged, subscriptions, and topic aliases of clients.",
                level("millrace_queue_bytes", "messages"),
                level("millrace_subscription_bytes", "subscriptions"),
                level("millrace_topic_alias_bytes", "topic aliases"),
            ),
            graph(
                "Network",
                "binBps",
                "Bytes from and to clients.",
                each("millrace_received_bytes_total", "job", "in"),
                each("millrace_sent_bytes_total", "job", "out"),
            ),
        ],
    ),
    (
        "Authentication",
        [
            graph(
                "Password checks",
                "cps",
                "By result. A right or wrong password costs a hash of Argon2id, one that is remembered costs nothing.",
                each("millrace_password_checks_total", "result", "{{result}}"),
                stack=True,
            ),
            graph(
                "Waiting for authentication",
                "short",
                "Passwords for their hash; clients for the keys of an issuer; requests for a tenant's service.",
                level("millrace_password_checks_waiting", "passwords"),
                level("millrace_key_set_waiting", "clients, for keys"),
                level("millrace_webhook_questions", "requests to services"),
            ),
            graph(
                "Tenants' services",
                "cps",
                "Requests about clients, and fetches of issuers' keys, by result.",
                each("millrace_webhook_questions_total", "result", "request: {{result}}"),
                each("millrace_key_set_fetches_total", "result", "keys: {{result}}"),
            ),
        ],
    ),
    (
        "API",
        [
            graph(
                "API requests",
                "cps",
                "By class of status.",
                each("millrace_http_requests_total", "status", "{{status}}"),
                stack=True,
            ),
            graph(
                "Time of an API request",
                "s",
                "To the head of the answer.",
                (quantile(0.5, "millrace_http_request_seconds"), "p50"),
                (quantile(0.99, "millrace_http_request_seconds"), "p99"),
            ),
            ranking(
                "Slowest routes",
                "s",
                "Mean time of a request, by method and route.",
                f"topk(8, sum by (method, route) (increase(millrace_http_request_seconds_sum{{{PODS}}}[$__range]))"
                f" / (sum by (method, route) (increase(millrace_http_request_seconds_count{{{PODS}}}[$__range])) > 0))",
                "{{method}} {{route}}",
            ),
        ],
    ),
    (
        "HTTP port",
        [
            graph(
                "Open HTTP connections",
                "short",
                "By pod: of the API, the console and WebSockets.",
                (f"millrace_http_connections_open{{{PODS}}}", "{{instance}}"),
                width=12,
            ),
            graph(
                "Closed HTTP connections",
                "cps",
                "Refused by a limit, idle ones that made room, and those without a whole head of a request in time.",
                each("millrace_http_connections_refused_total", "limit", "refused: {{limit}}"),
                each("millrace_http_connections_evicted_total", "job", "made room"),
                each("millrace_http_connections_timed_out_total", "job", "too slow"),
                width=12,
            ),
        ],
    ),
    (
        "Webhooks",
        [
            graph(
                "Events waiting",
                "short",
                "In the queues of the whole store: every pod shows the same number.",
                ("max(millrace_webhook_events_waiting)", "events"),
            ),
            graph(
                "Bytes of waiting events",
                "bytes",
                "In the queues of the whole store.",
                ("max(millrace_webhook_queue_bytes)", "bytes"),
            ),
            graph(
                "Age of the oldest event",
                "s",
                "Of the whole store. An event that its service refuses for a day becomes a dead letter.",
                ("max(millrace_webhook_oldest_event_seconds)", "oldest event"),
            ),
            graph(
                "Calls and events",
                "cps",
                "Calls of tenants' services, and events that left their queues, by result.",
                each("millrace_webhook_calls_total", "result", "calls: {{result}}"),
                each("millrace_webhook_events_total", "result", "events: {{result}}"),
                each("millrace_webhook_events_unqueued_total", "job", "events: lost, the store refused them"),
            ),
        ],
    ),
    variables=[variable("pod", "Pod", "millrace_connections_open", "instance")],
)
