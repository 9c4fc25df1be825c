# Machine counts from load. Each figure was measured with this project's own load tests. Half of a machine's CPU and
# memory stays free, for the loss of a zone and for upgrades. Connections have a hard limit instead: the machines that are
# left after the loss of a zone must take them all.
locals {
  headroom = 0.5

  # gateway/README.md, "Figures".
  gateway_bytes_per_connection = 33500
  gateway_connects_per_core    = 800

  # loadtests/README.md. The kernel's socket buffers are the larger part of a connection.
  edge_bytes_per_connection = 4096
  edge_messages_per_core    = 40000
  edge_durable_per_core     = 25000

  # One storage process on two cores; each copy is a write.
  fdb_writes_per_core = 35000

  connects = coalesce(var.connects_per_second, ceil(var.connections / 600))

  gateways_for_connects = local.connects / (var.cores.gateway * local.gateway_connects_per_core * local.headroom)
  edges_for_messages    = var.messages_per_second / (var.cores.edge * local.edge_messages_per_core * local.headroom)
  edges_for_writes      = var.durable_writes_per_second / (var.cores.edge * local.edge_durable_per_core * local.headroom)

  # A gateway has 28,000 ports towards each address and port of a pod, so 100,000 connections each.
  gateways_for_connections = var.connections / 100000
  edges_for_connections    = var.connections / 500000

  # N machines in Z zones have lost ceil(N/Z) of them with a zone.
  with_a_zone_lost = var.zones > 1 ? var.zones / (var.zones - 1) : 1

  gateway_count = max(2, ceil(local.gateways_for_connects), ceil(ceil(local.gateways_for_connections) * local.with_a_zone_lost))
  edge_count = max(3,
    ceil(max(local.edges_for_messages, local.edges_for_writes)),
    ceil(ceil(local.edges_for_connections) * local.with_a_zone_lost),
  )
  fdb_count = max(3, 3 * ceil(
    var.durable_writes_per_second * var.copies / (var.cores.foundationdb * local.fdb_writes_per_core * local.headroom) / 3
  ))
}
