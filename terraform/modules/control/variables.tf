variable "name" {
  type        = string
  description = "Prefix of names, such as millrace-eu."
}

variable "domain" {
  type        = string
  description = "The gateway's domain: the broker acme is at acme.DOMAIN."
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

variable "store" {
  type = object({
    cluster_file = string
    nats_urls    = list(string)
  })
  description = "FoundationDB and NATS: outputs of their modules."
}

variable "settings" {
  type        = any
  default     = {}
  description = "Further settings of millrace.toml, or other values for those that this module sets."
  validation {
    condition     = alltrue([for name in keys(var.settings) : can(regex("^[a-z_0-9]+$", name))])
    error_message = "settings are named as in millrace.toml, such as connections_max."
  }
}

variable "certificate_arn" {
  type        = string
  description = "Certificate of the console's name, in ACM."
}

variable "public_url" {
  type        = string
  description = "Where people reach console and API, such as https://console.mqtt.example.org."
  validation {
    condition     = can(regex("^https://[a-z0-9.-]+$", var.public_url))
    error_message = "public_url must be https:// and a host."
  }
}

variable "logs_bucket" {
  type        = string
  description = "Bucket of the load balancer's access logs."
}

variable "is_protected" {
  type        = bool
  default     = true
  description = "Refuses to delete the load balancer."
}
