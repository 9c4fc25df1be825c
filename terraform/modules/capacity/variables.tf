variable "connections" {
  type        = number
  description = "Devices connected at once."
  validation {
    condition     = var.connections >= 1 && var.connections <= 20000000
    error_message = "connections must be between 1 and 20,000,000: beyond that, build a second region."
  }
}

variable "connects_per_second" {
  type        = number
  default     = null
  description = "New connections a second that the region must take after an outage. Default: all devices within 10 minutes."
}

variable "messages_per_second" {
  type        = number
  description = "Messages that publishers send and subscribers receive, a second, together."
  validation {
    condition     = var.messages_per_second >= 0
    error_message = "messages_per_second must not be negative."
  }
}

variable "durable_writes_per_second" {
  type        = number
  description = "QoS 1 and 2 messages for persistent sessions, and retained messages, a second."
  validation {
    condition     = var.durable_writes_per_second >= 0
    error_message = "durable_writes_per_second must not be negative."
  }
}

variable "stored_gib" {
  type        = number
  default     = 100
  description = "Data in the store before replication: queues, retained messages, sessions."
}

variable "cores" {
  type = object({
    gateway      = number
    edge         = number
    foundationdb = number
  })
  description = "Cores of one machine of each kind."
}

variable "gateway_connections_max" {
  type        = number
  default     = 100000
  description = "Devices that one gateway takes."
  validation {
    condition     = var.gateway_connections_max >= 1
    error_message = "gateway_connections_max must be 1 or more."
  }
}

variable "foundationdb_processes" {
  type        = number
  default     = 4
  description = "Processes of FoundationDB on one machine. Each runs on one thread, so that a machine uses no more cores than this."
  validation {
    condition     = var.foundationdb_processes >= 1
    error_message = "foundationdb_processes must be 1 or more."
  }
}

variable "copies" {
  type        = number
  default     = 3
  description = "Copies that FoundationDB keeps of each key."
}

variable "zones" {
  type        = number
  default     = 3
  description = "Availability zones that the machines are spread over. From two on, any one may be lost."
  validation {
    condition     = var.zones >= 1
    error_message = "zones must be 1 or more."
  }
}
