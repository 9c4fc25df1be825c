variable "name" {
  type        = string
  description = "Prefix of names, such as millrace-eu."
}

variable "role" {
  type        = string
  description = "Kind of machine, such as edge. Part of its names. Its tag millrace-role may differ: foundationdb for store, nats for bus."
  validation {
    condition     = can(regex("^[a-z]{2,16}$", var.role))
    error_message = "role must be 2 to 16 small letters."
  }
}

variable "boot" {
  type = object({
    bucket        = string
    bucket_arn    = string
    kms_key_arn   = string
    endpoint      = optional(string)
    secret_name   = optional(string)
    secret_arn    = optional(string)
    secret_owner  = optional(string)
    secret_folder = optional(string, "/etc/millrace/secrets")
  })
  description = "Where the machine gets its programs and its secret."
}

variable "artifacts" {
  type = list(object({
    key    = string
    sha256 = string
    path   = optional(string)
  }))
  default     = []
  description = "Objects of the bucket that are installed: packages (.deb), or programs with the path that they get."
  validation {
    condition     = alltrue([for artifact in var.artifacts : can(regex("^[0-9a-f]{64}$", artifact.sha256))])
    error_message = "Each artifact needs its SHA-256, 64 hexadecimal digits."
  }
}

variable "files" {
  type = map(object({
    content = string
    mode    = optional(string, "0644")
  }))
  default     = {}
  description = "Files that are written at the first start, by path. No secrets: user data can be read on the machine."
}

variable "users" {
  type        = list(string)
  default     = []
  description = "System users that no package makes."
}

variable "owners" {
  type        = map(string)
  default     = {}
  description = "Owner of files and folders, by path."
}

variable "disks" {
  type = list(object({
    device = string
    path   = string
  }))
  default     = []
  description = "Disks that are mounted; an empty one gets a file system."
}

variable "units" {
  type        = list(string)
  default     = []
  description = "systemd units that are enabled and started last."
}

variable "ready" {
  type = object({
    group = string
    hook  = string
    url   = string
  })
  default     = null
  description = "Group of Auto Scaling and its lifecycle hook, which waits until the machine's program answers at url."
}

variable "statements" {
  type = list(object({
    sid       = string
    actions   = list(string)
    resources = list(string)
    via       = optional(string)
  }))
  default     = []
  description = "Permissions of the machine's role beside fetching its programs and its secret. via is the AWS service that asks KMS for the machine."
}
