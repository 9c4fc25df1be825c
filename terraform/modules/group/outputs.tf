output "name" {
  value       = aws_autoscaling_group.this.name
  description = "The group of machines."
}

output "cloud_config" {
  value       = module.machine.cloud_config
  description = "User data in plain text."
}
