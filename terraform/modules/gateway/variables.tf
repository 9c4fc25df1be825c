variable "name" {
  type        = string
  description = "Prefix of names, such as millrace-eu."
}

variable "network" {
  type = object({
    vpc_id             = string
    cidr               = string
    private_subnet_ids = list(string)
    public_subnet_ids  = list(string)
  })
  description = "Outputs of modules/network."
}

variable "security_group_id" {
  type        = string
  description = "Security group of the machines, from modules/access."
}

variable "balancer_security_group_id" {
  type        = string
  description = "Security group of the load balancer, from modules/access."
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

variable "kms_key_arn" {
  type        = string
  description = "Key of the disks."
}

variable "instance_type" {
  type        = string
  description = "Size of a machine."
}

variable "size" {
  type        = object({ min = number, max = number })
  description = "Least and most machines."
}

variable "ports" {
  type        = list(string)
  description = "Ports of the pods of an edge machine, GATEWAY/HTTP."
}

variable "logs_bucket" {
  type        = string
  description = "Bucket of the load balancer's access logs."
}

variable "connections_max" {
  type        = number
  default     = 100000
  description = "Devices on one gateway; further ones are refused there."
}

variable "heap_gib" {
  type        = number
  default     = 4
  description = "Memory of Envoy, three quarters of the machine's at most; new devices are refused from 95 % on."
}

variable "drain_s" {
  type        = number
  default     = 120
  description = "Seconds in which the devices of a gateway that stops may leave."
  validation {
    condition     = var.drain_s >= 10 && var.drain_s <= 150
    error_message = "drain_s must be between 10 and 150: EC2 cuts the power a few minutes after it asks a machine to stop."
  }
}

variable "is_protected" {
  type        = bool
  default     = true
  description = "Refuses to delete the load balancer: its address is what devices know."
}
