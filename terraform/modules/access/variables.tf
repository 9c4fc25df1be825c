variable "name" {
  type        = string
  description = "Prefix of names, such as millrace-eu."
}

variable "vpc_id" {
  type        = string
  description = "The network."
}

variable "cidr" {
  type        = string
  description = "Addresses of the network; AWS's services are asked there."
}

variable "s3_prefix_list_id" {
  type        = string
  description = "Addresses of S3."
}

variable "edge_ports" {
  type        = list(object({ gateway = number, http = number }))
  description = "Ports of the pods of one edge machine. Metrics are 10 above http."
}

variable "foundationdb_last_port" {
  type        = number
  description = "FoundationDB uses the ports from 4500 to this one."
  validation {
    condition     = var.foundationdb_last_port >= 4500 && var.foundationdb_last_port < 4600
    error_message = "foundationdb_last_port must be between 4500 and 4599."
  }
}

variable "devices" {
  type        = set(string)
  description = "Networks that devices may come from."
}

variable "people" {
  type        = set(string)
  description = "Networks that people and programs may come from."
}

variable "has_way_out" {
  type        = bool
  description = "Whether edge and control plane may call services of tenants on the internet."
}

variable "outgoing_http" {
  type        = set(string)
  default     = []
  description = "The kinds of machines, edge or control, that may call services of tenants on the internet by http, too."
}

variable "outgoing_allow" {
  type        = map(set(string))
  default     = {}
  description = "Networks beside the internet in which edge or control machines reach services of tenants at any port."
}

variable "has_collector" {
  type        = bool
  default     = false
  description = "Whether edge and control plane send traces and log lines to the telemetry machine."
}

variable "smtp_port" {
  type        = number
  default     = null
  description = "Port of the mail server that the control plane sends mail to. Null: it sends none."
}

variable "alertmanager" {
  type        = object({ targets = list(string), cidr = string })
  default     = null
  description = "Where Prometheus sends alerts."
}

variable "traces_port" {
  type        = number
  default     = null
  description = "Port within the network of the store that the collector passes traces and log lines on to. Null: it passes none on."
}
