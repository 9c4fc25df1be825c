variable "name" {
  type        = string
  description = "Prefix of the names. Bucket names are global, so the account's number is added."
}

variable "kms_key_arn" {
  type        = string
  description = "Key that artifacts and backups are encrypted with."
}

variable "delete_with_content" {
  type        = bool
  default     = false
  description = "Lets `terraform destroy` delete buckets that are not empty, backups too. For trials only."
}
