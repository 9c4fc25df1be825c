output "artifacts" {
  value       = { id = aws_s3_bucket.this["artifacts"].id, arn = aws_s3_bucket.this["artifacts"].arn }
  description = "Bucket of the programs that the machines install."
}

output "backups" {
  value       = { id = aws_s3_bucket.this["backups"].id, arn = aws_s3_bucket.this["backups"].arn }
  description = "Bucket of FoundationDB's backups."
}

output "logs" {
  value       = { id = aws_s3_bucket.this["logs"].id, arn = aws_s3_bucket.this["logs"].arn }
  description = "Bucket of access logs and flow logs."
  # AWS checks the writer of logs against the policy when the delivery is set up.
  depends_on = [aws_s3_bucket_policy.this]
}
