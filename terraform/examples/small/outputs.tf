output "region" {
  value       = { for name, value in module.region : name => value if name != "cloud_configs" }
  description = "Values that terraform/artifacts.sh, terraform/secrets.sh and people need."
}

# The checks boot machines with it. It holds no secrets, because machines fetch theirs from Secrets Manager.
output "cloud_configs" {
  value       = module.region.cloud_configs
  description = "User data of all machines in plain text."
}
