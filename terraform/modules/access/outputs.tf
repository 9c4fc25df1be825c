output "security_group_ids" {
  value       = { for name, group in aws_security_group.this : name => group.id }
  description = "Security group of each kind of machine, and of the two load balancers."
}

output "rules" {
  value       = [for rule in local.between : "${rule.from} -> ${rule.to}:${rule.port == rule.to_port ? rule.port : "${rule.port}-${rule.to_port}"}"]
  description = "Who may connect to whom, for reading."
}
