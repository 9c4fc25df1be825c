variable "name" {
  type        = string
  description = "Prefix of the names of key and secrets."
}

variable "recovery_days" {
  type        = number
  default     = 30
  description = "Days in which a deleted secret or key can be restored. 0 deletes secrets at once; a key is kept 7 days at least."
  validation {
    condition     = var.recovery_days == 0 || (var.recovery_days >= 7 && var.recovery_days <= 30)
    error_message = "recovery_days must be 0, or between 7 and 30."
  }
}
