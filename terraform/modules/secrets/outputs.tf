output "kms_key_arn" {
  value       = aws_kms_key.this.arn
  description = "The region's key."
}

output "secrets" {
  value       = { for role, secret in aws_secretsmanager_secret.this : role => { arn = secret.arn, name = secret.name } }
  description = "The secret of each kind of machine."
}
