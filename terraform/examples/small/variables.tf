variable "domain" {
  type        = string
  description = "Name of the service, such as mqtt.example.org."
}

variable "zone_id" {
  type        = string
  description = "Public hosted zone that the name is in."
}

variable "artifacts" {
  type        = any
  description = "Programs in the artifacts bucket, as terraform/artifacts.sh prints them."
}

variable "is_protected" {
  type        = bool
  default     = false
  description = "Keeps database, load balancers, secrets and full buckets from being deleted."
}

variable "ami_id" {
  type        = string
  description = "Debian 12 image of this AWS region, amd64."
}

variable "aws_region" {
  type        = string
  default     = "eu-central-1"
  description = "AWS region."
}

variable "aws_endpoint" {
  type        = string
  default     = null
  description = "URL that replaces those of all AWS services, such as http://10.0.0.9:80."
}

variable "edge_settings" {
  type        = any
  default     = {}
  description = "Further settings of millrace.toml on the edge."
}

variable "control_settings" {
  type        = any
  default     = {}
  description = "Further settings of millrace.toml on the control plane."
}

variable "edge_ports" {
  type        = list(object({ gateway = number, http = number }))
  default     = [{ gateway = 1884, http = 8080 }]
  description = "Ports of the pods of one edge machine."
}

variable "alertmanager" {
  type        = any
  default     = null
  description = "Your Alertmanager, such as { targets = [\"alerts.example.org:9093\"], cidr = \"203.0.113.7/32\" }. Null: no alert reaches a person."
}

variable "runbooks_url" {
  type        = string
  default     = null
  description = "URL of the folder runbooks/ that alerts link; see modules/region."
}
