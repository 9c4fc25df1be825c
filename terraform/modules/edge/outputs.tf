output "cloud_config" {
  value       = module.group.cloud_config
  description = "User data in plain text."
}

output "settings" {
  value       = local.settings
  description = "millrace.toml as a map."
}

output "ports" {
  value       = [for port in var.ports : "${port.gateway}/${port.http}"]
  description = "Ports of each machine's pods, as gateway.sh takes them."
}

output "stop_s" {
  value       = local.stop_s
  description = "Seconds that systemd waits for a server that stops."
}
