output "instance_profile" {
  value       = aws_iam_instance_profile.this.name
  description = "The machines' permissions."
}

output "user_data_base64" {
  value       = base64gzip(local.cloud_config)
  description = "User data, packed: AWS takes 16 KiB."
  precondition {
    condition     = length(base64gzip(local.cloud_config)) <= 21848
    error_message = "The user data of ${local.full_name} is larger than 16 KiB."
  }
}

output "cloud_config" {
  value       = local.cloud_config
  description = "The same in plain text, for tests and for looking at it."
}
