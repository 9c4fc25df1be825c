output "gateway_count" {
  value       = local.gateway_count
  description = "Envoy machines."
}

output "edge_count" {
  value       = local.edge_count
  description = "Edge machines, each with one pod."
}

output "foundationdb_count" {
  value       = local.fdb_count
  description = "FoundationDB machines, a multiple of three zones."
}

output "gateway_memory_gib" {
  value       = ceil(var.connections / local.gateway_count * local.with_a_zone_lost * local.figures.gateway_bytes_per_connection / local.figures.memory_use_max / 1073741824)
  description = "Least memory of one gateway."
}

output "edge_memory_gib" {
  value       = ceil(var.connections / local.edge_count * local.with_a_zone_lost * local.figures.edge_bytes_per_connection / local.figures.memory_use_max / 1073741824) + 1
  description = "Least memory of one edge machine."
}

output "storage_disk_gib" {
  value       = max(100, ceil(var.stored_gib * var.copies / local.fdb_count / 0.5))
  description = "Size of each storage disk; half of it stays free."
}
