"""Envoy before the pods: TLS, and which pods are healthy."""

from parts import COLOURS, board, graph, number

ENVOY = "Envoy"
# All listeners except that of the status page, GATEWAY_STATUS_PORT.
CLIENTS = 'envoy_listener_address!~".*_9902"'
EDGE = 'envoy_cluster_name="edge"'
EDGE_LABELS = f"{{{EDGE}}}"


def rate(counter, labels=""):
    """The collector ends the names of Envoy's counters with _total; a Prometheus that scrapes Envoy itself does not."""
    return " or ".join(f"sum by (job) (rate({name}{labels}[$__rate_interval]))" for name in (f"{counter}_total", counter))


BOARD = board(
    "gateway",
    "Millrace: gateway",
    "TLS connections at Envoy, the pods behind it, and its own limits.",
    (
        None,
        [
            number(
                "Clients",
                "short",
                "Open connections at the listeners.",
                f"sum(envoy_listener_downstream_cx_active{{{CLIENTS}}})",
                needs=ENVOY,
            ),
            number(
                "Healthy pods",
                "percentunit",
                "As the gateway's health checks see them.",
                f"sum(envoy_cluster_membership_healthy{{{EDGE}}}) / sum(envoy_cluster_membership_total{{{EDGE}}})",
                [(0.7, COLOURS[1]), (1, COLOURS[0])],
                base=COLOURS[5],
                needs=ENVOY,
            ),
            number(
                "TLS handshakes",
                "cps",
                "Complete ones.",
                rate("envoy_listener_ssl_handshake"),
                needs=ENVOY,
            ),
            number(
                "Certificate ends in",
                "d",
                "The first of all.",
                "min(envoy_server_days_until_first_cert_expiring)",
                [(21, COLOURS[0])],
                base=COLOURS[5],
                needs=ENVOY,
            ),
        ],
    ),
    (
        "Clients",
        [
            graph(
                "Connections",
                "short",
                "Open, by listener.",
                (
                    f"sum by (envoy_listener_address) (envoy_listener_downstream_cx_active{{{CLIENTS}}})",
                    "{{envoy_listener_address}}",
                ),
                needs=ENVOY,
            ),
            graph(
                "New connections",
                "cps",
                "Accepted, and closed because a limit was reached.",
                ("sum by (job) (rate(envoy_listener_downstream_cx_total[$__rate_interval]))", "accepted"),
                (rate("envoy_listener_downstream_cx_overflow"), "over a limit"),
                (rate("envoy_listener_downstream_pre_cx_timeout"), "silent"),
                needs=ENVOY,
            ),
            graph(
                "TLS",
                "cps",
                "Handshakes, and what went wrong.",
                (rate("envoy_listener_ssl_handshake"), "complete"),
                (rate("envoy_listener_ssl_connection_error"), "errors"),
                (rate("envoy_listener_ssl_fail_verify_error"), "certificate not accepted"),
                needs=ENVOY,
            ),
        ],
    ),
    (
        "Pods",
        [
            graph(
                "Pods",
                "short",
                "All, and those that are healthy.",
                (f"envoy_cluster_membership_total{{{EDGE}}}", "all"),
                (f"envoy_cluster_membership_healthy{{{EDGE}}}", "healthy"),
                needs=ENVOY,
            ),
            graph(
                "Connections to pods",
                "short",
                "Open now.",
                (f"sum by (instance) (envoy_cluster_upstream_cx_active{{{EDGE}}})", "{{instance}}"),
                needs=ENVOY,
            ),
            graph(
                "Connections to pods that failed",
                "cps",
                "Refused or timed out.",
                (rate("envoy_cluster_upstream_cx_connect_fail", EDGE_LABELS), "refused"),
                (rate("envoy_cluster_upstream_cx_connect_timeout", EDGE_LABELS), "timed out"),
                needs=ENVOY,
            ),
            graph(
                "Health checks",
                "cps",
                "Failed ones lead to a pod that gets no new clients.",
                (rate("envoy_cluster_health_check_attempt", EDGE_LABELS), "attempts"),
                (rate("envoy_cluster_health_check_failure", EDGE_LABELS), "failures"),
                needs=ENVOY,
            ),
            graph(
                "Memory",
                "bytes",
                "Allocated by Envoy: TLS connections cost more here than on a pod.",
                ("envoy_server_memory_allocated", "{{instance}}"),
                needs=ENVOY,
            ),
            graph(
                "Memory for each client",
                "bytes",
                "All that Envoy has, by open connections.",
                (
                    f"sum(envoy_server_memory_allocated) / (sum(envoy_listener_downstream_cx_active{{{CLIENTS}}}) > 0)",
                    "bytes",
                ),
                needs=ENVOY,
            ),
        ],
    ),
)
