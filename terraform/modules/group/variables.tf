variable "machine" {
  type = object({
    name       = string
    role       = string
    boot       = any
    artifacts  = any
    files      = any
    owners     = optional(map(string), {})
    users      = optional(list(string), [])
    units      = list(string)
    statements = optional(any, [])
  })
  description = "The kind of machine; the fields are the variables of modules/machine."
}

variable "ami_id" {
  type        = string
  description = "Debian 12 image, amd64."
}

variable "instance_type" {
  type        = string
  description = "Size of a machine."
}

variable "kms_key_arn" {
  type        = string
  description = "Key of the disks."
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets that the machines are spread over."
}

variable "size" {
  type = object({
    min = number
    max = number
  })
  description = "Machines: `min` of them, up to `max` while an upgrade replaces them or the load asks for more."
  validation {
    condition     = var.size.min >= 1 && var.size.max >= var.size.min
    error_message = "size.min must be at least 1, and size.max at least size.min."
  }
}

variable "target_group_arns" {
  type        = list(string)
  default     = []
  description = "Target groups of the load balancer before the machines."
}

variable "health_url" {
  type        = string
  default     = null
  description = "Without target groups: the page of the machine's own program that answers 200 once it serves."
  validation {
    condition     = (var.health_url == null) == (length(var.target_group_arns) > 0)
    error_message = "health_url and target_group_arns: exactly one of them says when a machine serves."
  }
}

variable "cpu_target" {
  type        = number
  default     = 50
  description = "Percent of CPU above which machines are added."
  validation {
    condition     = var.cpu_target >= 20 && var.cpu_target <= 80
    error_message = "cpu_target must be between 20 and 80 percent."
  }
}

variable "warmup_s" {
  type        = number
  default     = 180
  description = "Seconds that a new machine needs until it serves. An upgrade waits as long before it replaces the next one."
}

variable "security_group_id" {
  type        = string
  description = "Security group of the machines."
}
