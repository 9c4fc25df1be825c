variable "name" {
  type        = string
  description = "Prefix of the names. Bucket names are global, so the account's number is added."
}

variable "kms_key_arn" {
  type        = string
  description = "Key that artifacts and backups are encrypted with."
}

variable "backup_days" {
  type        = number
  default     = 35
  description = "Days that a backup is kept."
  validation {
    condition     = var.backup_days >= 7
    error_message = "backup_days must be at least 7: a shorter time loses the last good backup over a holiday."
  }
}

variable "delete_with_content" {
  type        = bool
  default     = false
  description = "Lets `terraform destroy` delete buckets that are not empty, backups too. For trials only."
}
