# Machine counts from load, with the figures that `loadtests/capacity/capacity.py --figures` has written. As in its model, the
# machines that are left after the loss of a zone carry the whole load, and use no more than cpu_use_max and memory_use_max.
locals {
  figures = jsondecode(file("${path.module}/figures.json"))

  # Cores of one machine that may be in use.
  gateway_cores = var.cores.gateway * local.figures.cpu_use_max
  edge_cores    = var.cores.edge * local.figures.cpu_use_max
  fdb_cores     = min(var.cores.foundationdb, var.foundationdb_processes) * local.figures.cpu_use_max

  # Without a rate, all devices connect again within 600 s of an outage.
  connects = coalesce(var.connects_per_second, ceil(var.connections / 600))

  gateways_for_cpu = (local.connects / local.figures.gateway_connects_per_core
  + var.messages_per_second / local.figures.gateway_messages_per_core) / local.gateway_cores
  edges_for_messages = var.messages_per_second / (local.edge_cores * local.figures.edge_messages_per_core)
  edges_for_writes   = var.durable_writes_per_second / (local.edge_cores * local.figures.edge_durable_per_core)

  # A gateway has 54,760 ports towards each address and port of a pod (templates/sysctl.conf), so three pods fill it, and two that
  # are left of them still do. Its heap of 4 GiB has room for 100,000 connections.
  # An edge machine takes 500,000 (loadtests/capacity).
  gateways_for_connections = var.connections / var.gateway_connections_max
  edges_for_connections    = var.connections / 500000

  # N machines in Z zones have lost ceil(N/Z) of them with a zone.
  with_a_zone_lost = var.zones > 1 ? var.zones / (var.zones - 1) : 1

  gateway_count = max(2, ceil(ceil(max(local.gateways_for_cpu, local.gateways_for_connections)) * local.with_a_zone_lost))
  edge_count = max(3, ceil(
    ceil(max(local.edges_for_messages, local.edges_for_writes, local.edges_for_connections)) * local.with_a_zone_lost
  ))
  fdb_count = max(3, 3 * ceil(
    var.durable_writes_per_second * var.copies * local.figures.store_writes_per_message * local.with_a_zone_lost
    / (local.fdb_cores * local.figures.store_writes_per_core) / 3
  ))
}
