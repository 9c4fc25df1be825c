output "instance_id" {
  value       = aws_instance.this.id
  description = "Machine for `aws ssm start-session`."
}

output "cloud_config" {
  value       = module.machine.cloud_config
  description = "User data in plain text."
}

output "rules" {
  value       = { for path, file in local.rules : path => file.content }
  description = "Prometheus' files of rules, by path."
}

output "prometheus" {
  value       = local.prometheus
  description = "prometheus.yml."
}

output "address" {
  value       = local.address
  description = "Address of a machine with a collector: pods send OTLP/HTTP to its port 4318."
}

output "collector" {
  value       = { for path, file in local.collector : path => file.content }
  description = "Files of the collector, by path."
}
