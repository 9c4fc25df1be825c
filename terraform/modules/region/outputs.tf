output "mqtt_endpoint" {
  value       = "mqtts://BROKER.${var.domain}:8883"
  description = "URL for devices. BROKER stands for the name of a broker."
}

output "console_url" {
  value       = module.dns_certificates.console_url
  description = "Console and API."
}

output "artifacts_bucket" {
  value       = module.buckets.artifacts.id
  description = "Bucket for terraform/artifacts.sh."
}

output "backups_bucket" {
  value       = module.buckets.backups.id
  description = "Bucket of FoundationDB's backups."
}

output "secrets" {
  value       = { for role, secret in module.secrets.secrets : role => secret.name }
  description = "Secrets that terraform/secrets.sh fills."
}

output "has_secret_key" {
  value       = var.has_secret_key
  description = "Whether the servers have a secret_key_file, which terraform/secrets.sh makes."
}

output "nats_addresses" {
  value       = module.nats.addresses
  description = "Addresses that the servers' certificates must name."
}

output "telemetry_instance" {
  value       = module.telemetry.instance_id
  description = "Machine of Prometheus, for `aws ssm start-session`."
}

output "machines" {
  value = {
    gateway      = local.gateways
    edge         = local.edges
    foundationdb = local.fdbs
    nats         = var.counts.nats
    control      = var.counts.control
  }
  description = "Number of machines of each kind."
}

output "outdated" {
  value       = concat(module.foundationdb.outdated, module.nats.outdated)
  description = "Machines of FoundationDB and NATS whose type, image or user data is not the configured one: replace them one by one."
}

output "redundancy" {
  value       = module.foundationdb.redundancy
  description = "FoundationDB's redundancy mode. foundationdb-1 sets it when all machines have joined."
}

output "cloud_configs" {
  value = {
    edge         = module.edge.cloud_config
    gateway      = module.gateway.cloud_config
    control      = module.control.cloud_config
    telemetry    = module.telemetry.cloud_config
    nats         = module.nats.cloud_config
    foundationdb = module.foundationdb.cloud_config
  }
  description = "User data of all machines in plain text. It has no secret."
}

output "access" {
  value       = module.access.rules
  description = "Connections that the security groups allow between the region's machines, as text."
}

output "prometheus" {
  value       = module.telemetry.prometheus
  description = "prometheus.yml of the telemetry machine."
}

output "access_out" {
  value       = module.access.out
  description = "Connections that the security groups allow to addresses outside of the region, as text."
}

output "domain" {
  value       = var.domain
  description = "Domain of the region: devices connect to BROKER.DOMAIN."
}

output "stop_s" {
  value       = { edge = module.edge.stop_s, control = module.control.stop_s }
  description = "Seconds that systemd waits for a server to stop before it kills the server."
}
