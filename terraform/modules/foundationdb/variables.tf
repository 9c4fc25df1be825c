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
  description = "Machines: 3, or a larger multiple of three."
  validation {
    condition     = var.machine_count >= 3 && var.machine_count <= 180 && var.machine_count % 3 == 0
    error_message = "machine_count must be 3, 6, 9 and so on up to 180, so that each zone has as many as the others."
  }
}

variable "excluded" {
  type        = set(string)
  default     = []
  description = "Addresses of machines that may end, because `fdbcli --exec 'exclude ADDRESS'` has moved their data to the others."
}

variable "redundancy" {
  type        = string
  default     = null
  description = "FoundationDB's redundancy mode. Default: three_data_hall in three zones from 6 machines on, else double."
  validation {
    condition     = var.redundancy == null || contains(["double", "triple", "three_data_hall"], coalesce(var.redundancy, "double"))
    error_message = "redundancy must be double, triple or three_data_hall: with a single copy a lost disk is lost data."
  }
}

variable "storage_processes" {
  type        = number
  default     = 2
  description = "Storage processes of each machine. Each takes a core and memory_gib."
  validation {
    condition     = var.storage_processes >= 1 && var.storage_processes <= 8
    error_message = "storage_processes must be between 1 and 8."
  }
}

variable "memory_gib" {
  type        = number
  default     = 4
  description = "Memory of each process."
  validation {
    condition     = var.memory_gib >= 4
    error_message = "memory_gib must be at least 4: FoundationDB is killed while it recovers with less."
  }
}

variable "log_disk" {
  type = object({
    size_gib   = number
    type       = optional(string, "gp3")
    iops       = optional(number, 3000)
    throughput = optional(number, 125)
  })
  default     = { size_gib = 50 }
  description = "Disk of the transaction log, which waits for each write. io2 for the lowest latency."
  validation {
    condition     = contains(["gp3", "io2"], var.log_disk.type) && var.log_disk.size_gib >= 20
    error_message = "log_disk must be gp3 or io2, of at least 20 GiB."
  }
}

variable "storage_disk" {
  type = object({
    size_gib   = number
    type       = optional(string, "gp3")
    iops       = optional(number, 3000)
    throughput = optional(number, 125)
  })
  default     = { size_gib = 200 }
  description = "Disk of the storage processes. Half of it must stay free."
  validation {
    condition     = contains(["gp3", "io2"], var.storage_disk.type) && var.storage_disk.size_gib >= 100
    error_message = "storage_disk must be gp3 or io2, of at least 100 GiB."
  }
}

variable "backups" {
  type        = object({ id = string, arn = string })
  description = "Bucket of the backups."
}

variable "backup_days" {
  type        = number
  default     = 35
  description = "Days whose every moment can be restored."
  validation {
    condition     = var.backup_days >= 7
    error_message = "backup_days must be at least 7: a shorter time loses the last good backup over a holiday."
  }
}

variable "is_protected" {
  type        = bool
  default     = true
  description = "Refuses to end the machines through AWS's API and console, and keeps a snapshot of a disk that Terraform deletes."
}
