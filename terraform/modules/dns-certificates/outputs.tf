output "certificate_arn" {
  value       = aws_acm_certificate_validation.console.certificate_arn
  description = "The console's certificate, once it is valid."
}

output "console_url" {
  value       = "https://${local.console}"
  description = "Console and API."
}
