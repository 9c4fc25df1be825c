output "cluster_file" {
  value       = local.cluster_file
  description = "Contents of fdb.cluster. Clients also need a certificate of the region's authority."
}

output "last_port" {
  value       = local.last_port
  description = "Clients connect to the ports from 4500 to this one."
}

output "addresses" {
  value       = local.addresses
  description = "Addresses of the machines."
}

output "redundancy" {
  value       = local.redundancy
  description = "FoundationDB's redundancy mode."
}

output "cloud_config" {
  value       = { for name, machine in module.machine : name => machine.cloud_config }
  description = "User data of each machine in plain text."
}
