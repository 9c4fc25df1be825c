variable "domain" {
  type        = string
  description = "Devices connect to BROKER.domain, such as acme.mqtt.example.org; people open console.domain."
  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]{2,}$", var.domain))
    error_message = "domain must be a name such as mqtt.example.org, in small letters."
  }
}

variable "zone_id" {
  type        = string
  description = "Public hosted zone that the domain is in."
}

variable "gateway" {
  type        = object({ dns_name = string, zone_id = string })
  description = "Load balancer of the devices."
}

variable "control" {
  type        = object({ dns_name = string, zone_id = string })
  description = "Load balancer of console and API."
}
