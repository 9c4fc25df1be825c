output "region" {
  value       = { for name, value in module.region : name => value if name != "cloud_configs" }
  description = "Values that terraform/artifacts.sh, terraform/secrets.sh and people need."
}

output "cloud_configs" {
  value       = module.region.cloud_configs
  description = "User data of all machines in plain text."
}
