output "instance_id" {
  value       = aws_instance.this.id
  description = "Machine for `aws ssm start-session`."
}

output "cloud_config" {
  value       = module.machine.cloud_config
  description = "User data in plain text."
}
