variable "name" {
  type        = string
  description = "Prefix of the names of all resources, such as millrace-eu."
}

variable "cidr" {
  type        = string
  default     = "10.40.0.0/16"
  description = "Addresses of the network, a /16: each zone gets a private /20 and a public /24 of it. It stays for as long as the network."
  validation {
    condition     = try(can(cidrnetmask(var.cidr)) && endswith(var.cidr, "/16") && cidrsubnet(var.cidr, 0, 0) == var.cidr, false)
    error_message = "cidr must be an IPv4 network of /16, such as 10.40.0.0/16."
  }
}

variable "availability_zones" {
  type        = list(string)
  description = "Zones that the machines are spread over: one, or three. They stay, in their order, for as long as the network."
  validation {
    condition     = contains([1, 3], length(distinct(var.availability_zones))) && length(distinct(var.availability_zones)) == length(var.availability_zones)
    error_message = "availability_zones must name one zone, or three different ones: FoundationDB keeps a majority only with three."
  }
}

variable "nat_gateways" {
  type        = string
  default     = "one"
  description = "Way out for webhooks and key sets of tenants: none, one, or per_zone."
  validation {
    condition     = contains(["none", "one", "per_zone"], var.nat_gateways)
    error_message = "nat_gateways must be none, one or per_zone."
  }
}

variable "interface_endpoints" {
  type        = set(string)
  default     = ["secretsmanager", "ec2", "ssm", "ssmmessages"]
  description = "AWS services that the machines reach inside the network. ssm and ssmmessages are for shells without SSH."
}

variable "logs_bucket_arn" {
  type        = string
  description = "Bucket for the flow logs of the network."
}
