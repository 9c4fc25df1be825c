output "security_group_ids" {
  value       = { for name, group in aws_security_group.this : name => group.id }
  description = "Security group of each kind of machine, and of the two load balancers."
}

output "rules" {
  value       = [for rule in local.between : "${rule.from} -> ${rule.to}:${rule.port == rule.to_port ? rule.port : "${rule.port}-${rule.to_port}"}"]
  description = "Connections that the security groups allow between machines, as text. The test of modules/region compares the whole list, so that no change goes unnoticed."
}

output "out" {
  value = concat(
    [for name in local.out : "${name} -> internet:443"],
    [for name in local.out_http : "${name} -> internet:80"],
    [for way in local.out_allow : "${way.role} -> ${way.network}"],
    var.smtp_port == null ? [] : ["control -> internet:${var.smtp_port}"],
    [for port in local.alert_ports : "telemetry -> ${var.alertmanager.cidr}:${port}"],
    [for port in local.trace_ports : "telemetry -> ${var.cidr}:${port}"],
  )
  description = "Connections that the security groups allow to addresses outside of the region, as text."
}
