output "dns_name" {
  value       = aws_lb.this.dns_name
  description = "Address of the load balancer."
}

output "zone_id" {
  value       = aws_lb.this.zone_id
  description = "Zone of that address, for an alias."
}

output "cloud_config" {
  value       = module.group.cloud_config
  description = "User data in plain text."
}

output "stop_s" {
  value       = local.stop_s
  description = "Seconds that systemd waits for a server that stops."
}

output "settings" {
  value       = local.settings
  description = "millrace.toml as a map."
}
