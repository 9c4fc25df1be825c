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

output "drain" {
  value       = { for name, group in aws_lb_target_group.this : name => one(group.target_health_state) }
  description = "How the load balancer treats the devices of a gateway that is not ready."
}
