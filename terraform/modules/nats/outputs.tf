output "urls" {
  value       = [for address in local.addresses : "tls://${address}:4222"]
  description = "Servers, as `millrace serve --nats` takes them."
}

output "addresses" {
  value       = local.addresses
  description = "Addresses of the servers; their certificates must name them."
}

output "cloud_config" {
  value       = { for name, machine in module.machine : name => machine.cloud_config }
  description = "User data of each server in plain text."
}

output "outdated" {
  value = [
    for name, machine in aws_instance.this : name
    if machine.ami != var.ami_id || machine.instance_type != var.instance_type || machine.user_data_base64 != module.machine[name].user_data_base64
  ]
  description = "Machines of another type, or with an older image or user data."
}
