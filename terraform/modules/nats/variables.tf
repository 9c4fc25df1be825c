variable "name" {
  type        = string
  description = "Prefix of names, such as millrace-eu."
}

variable "security_group_id" {
  type        = string
  description = "Security group of the machines, from modules/access."
}

variable "boot" {
  type        = any
  description = "Where the machines get their programs and their secret; see modules/machine."
}

variable "artifacts" {
  type        = list(object({ key = string, sha256 = string, path = optional(string) }))
  description = "Programs that the machines install."
}

variable "ami_id" {
  type        = string
  description = "Debian 12 image, amd64."
}

variable "network" {
  type = object({
    vpc_id          = string
    cidr            = string
    private_subnets = list(object({ id = string, zone = string, cidr = string }))
  })
  description = "Outputs of modules/network."
}

variable "kms_key_arn" {
  type        = string
  description = "Key of the disks."
}

variable "instance_type" {
  type        = string
  description = "Size of a machine."
}

variable "machine_count" {
  type        = number
  default     = 3
  description = "Servers of the cluster."
  validation {
    condition     = contains([1, 3, 5], var.machine_count)
    error_message = "machine_count must be 1, 3 or 5."
  }
}
