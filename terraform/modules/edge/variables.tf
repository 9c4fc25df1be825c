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

variable "gateway_cidrs" {
  type        = list(string)
  description = "Networks that the gateways connect from. Only these may say who a client is."
}

variable "server_reference" {
  type        = string
  description = "Where clients are sent when a pod drains, such as mqtt.example.org:8883."
}

variable "console_url" {
  type        = string
  description = "Origin of the console, whose pages may open a WebSocket to any broker."
}

variable "ports" {
  type        = list(object({ gateway = number, http = number }))
  default     = [{ gateway = 1884, http = 8080 }]
  description = "Ports of each pod of a machine. A gateway has 54,760 connections to one of them at most."
}

variable "drain_s" {
  type        = number
  default     = 60
  description = "Seconds in which a pod that stops sends its clients away."
  validation {
    condition     = var.drain_s >= 5 && var.drain_s <= 120
    error_message = "drain_s must be between 5 and 120: EC2 cuts the power a few minutes after it asks a machine to stop."
  }
}
