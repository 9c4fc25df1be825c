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

variable "targets" {
  type = list(object({
    role = string
    port = number
    path = string
    job  = string
  }))
  description = "Targets to scrape: the tag millrace-role of the machines, the port, the path, and the job that the rules know."
}

variable "nats_addresses" {
  type        = list(string)
  description = "NATS servers, whose status is read."
}

variable "foundationdb_address" {
  type        = string
  description = "Machine that shows the status of the FoundationDB cluster."
}

variable "alertmanager" {
  type = object({
    targets     = list(string)
    scheme      = string
    path_prefix = string
  })
  default     = null
  description = "Alertmanager, which sends alerts to people. Null: alerts are on Prometheus' own page only."
}

variable "runbooks_url" {
  type        = string
  default     = null
  description = "URL of the folder runbooks/ that alerts link. Null: links are relative to the repository."
}

variable "disk_gib" {
  type        = number
  default     = 100
  description = "Size of the disk that holds the measurements, GiB."
  validation {
    condition     = var.disk_gib >= 20
    error_message = "disk_gib must be at least 20."
  }
}

variable "retention" {
  type        = string
  default     = "30d"
  description = "How long measurements are kept, while four fifths of the disk have room for them."
  validation {
    condition     = can(regex("^[0-9]+[dwy]$", var.retention))
    error_message = "retention is a number and d, w or y, such as 30d."
  }
}

variable "machines" {
  type        = map(number)
  description = "Machines that the region should have of each kind, by the tag millrace-role."
}

variable "collector" {
  type        = object({ export_to = string })
  default     = null
  description = "An OpenTelemetry collector beside Prometheus, and the OTLP/HTTP address of a store that it passes traces and log lines on to; without one it counts them. Null: no collector."
}
