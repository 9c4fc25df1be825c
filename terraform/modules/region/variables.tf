variable "name" {
  type        = string
  description = "Name of the region; prefix of the names of all resources, such as millrace-eu."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,14}[a-z0-9]$", var.name))
    error_message = "name must be 3 to 16 small letters, digits and dashes: longer ones do not fit into the names of load balancers."
  }
}

variable "domain" {
  type        = string
  description = "Devices connect to BROKER.domain; people open console.domain."
}

variable "zone_id" {
  type        = string
  description = "Public hosted zone that the domain is in."
  validation {
    condition     = can(regex("^[A-Z0-9]{4,32}$", var.zone_id))
    error_message = "zone_id must be the id of a hosted zone, such as Z0123456789, not its name."
  }
}

variable "availability_zones" {
  type        = list(string)
  description = "One zone for a trial, three for anything else. They stay, in their order, for as long as the region."
}

variable "cidr" {
  type        = string
  default     = "10.40.0.0/16"
  description = "Addresses of the network, a /16. They stay for as long as the region."
}

variable "ami_id" {
  type        = string
  description = "Debian 12 image, amd64. It is named, not looked up: a newer one would replace every machine at the next plan."
  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.ami_id))
    error_message = "ami_id must be an image such as ami-0123456789abcdef0."
  }
}

variable "artifacts" {
  type = object({
    millrace             = object({ key = string, sha256 = string })
    foundationdb_clients = object({ key = string, sha256 = string })
    foundationdb_server  = object({ key = string, sha256 = string })
    nats_server          = object({ key = string, sha256 = string })
    envoy                = object({ key = string, sha256 = string })
    prometheus           = object({ key = string, sha256 = string })
    node_exporter        = object({ key = string, sha256 = string })
    otelcol              = optional(object({ key = string, sha256 = string }))
    everywhere           = optional(list(object({ key = string, sha256 = string })), [])
  })
  description = "Programs in the artifacts bucket, as terraform/artifacts.sh prints them. `everywhere` is installed on each machine, such as amazon-ssm-agent. With `otelcol` the telemetry machine runs an OpenTelemetry collector."
  validation {
    condition = alltrue([
      for artifact in concat(var.artifacts.everywhere, [for name, artifact in var.artifacts : artifact if name != "everywhere" && artifact != null]) :
      can(regex("^[A-Za-z0-9._+-][A-Za-z0-9._+/-]*$", artifact.key))
    ])
    error_message = "artifacts: each needs a key such as millrace_0.1.0_amd64.deb, without a slash at its beginning, as terraform/artifacts.sh prints them."
  }
}

variable "load" {
  type = object({
    connections               = number
    messages_per_second       = number
    durable_writes_per_second = number
    stored_gib                = optional(number, 100)
  })
  description = "Load that the region must carry. The number of machines comes from it."
}

variable "machines" {
  type = object({
    gateway      = optional(object({ type = string, cores = number }), { type = "c7i.xlarge", cores = 4 })
    edge         = optional(object({ type = string, cores = number }), { type = "c7i.2xlarge", cores = 8 })
    foundationdb = optional(object({ type = string, cores = number }), { type = "m7i.xlarge", cores = 4 })
    nats         = optional(object({ type = string, cores = number }), { type = "c7i.large", cores = 2 })
    control      = optional(object({ type = string, cores = number }), { type = "t3.medium", cores = 2 })
    telemetry    = optional(object({ type = string, cores = number }), { type = "t3.medium", cores = 2 })
  })
  default     = {}
  description = "Size of each kind of machine."
  validation {
    condition     = alltrue([for machine in values(var.machines) : machine.cores >= 1 && machine.cores == floor(machine.cores)])
    error_message = "machines: cores must be the cores of the type, a whole number."
  }
  validation {
    condition     = alltrue([for machine in values(var.machines) : can(regex("^[a-z]+[0-9]+[a-fh-z-]*[.][a-z0-9-]+$", machine.type))])
    error_message = "machines: type must be an instance type with an amd64 processor, such as c7i.large: the image and the programs are for amd64."
  }
  validation {
    condition = alltrue([
      for machine in [var.machines.foundationdb, var.machines.telemetry] :
      !can(regex("^(t[12]|[mcr][1-4]|[dgp]2|[gp]3|[fh]1|i[23]|x1e?)[.]", machine.type))
    ])
    error_message = "machines: foundationdb and telemetry need a type of the Nitro system, such as m7i.xlarge: older types do not name their disks by NVMe, and a machine waits for its disk without end."
  }
}

variable "counts" {
  type = object({
    gateway      = optional(number)
    edge         = optional(number)
    foundationdb = optional(number)
    nats         = optional(number, 3)
    control      = optional(number, 2)
  })
  default     = {}
  description = "Numbers of machines, where they should differ from what the load asks for."
  validation {
    condition     = alltrue([for count in values(var.counts) : count == null ? true : count >= 1 && count == floor(count)])
    error_message = "counts must be whole numbers from 1 on. Leave a kind out to have as many as the load asks for."
  }
}

variable "nat_gateways" {
  type        = string
  default     = "per_zone"
  description = "Way out for webhooks and key sets of tenants: none, one, or per_zone."
}

variable "gateway" {
  type = object({
    connections_max = optional(number, 100000)
    heap_gib        = optional(number, 4)
    drain_s         = optional(number, 120)
  })
  default     = {}
  description = "Limits of one gateway: its devices, the memory of Envoy (three quarters of the machine's at most), and the seconds in which devices leave a gateway that stops."
  validation {
    condition     = var.gateway.connections_max >= 1 && var.gateway.connections_max == floor(var.gateway.connections_max)
    error_message = "gateway: connections_max must be a whole number of devices."
  }
  # Envoy refuses new devices from 95 % of its heap on.
  validation {
    condition = (var.gateway.connections_max * jsondecode(file("${path.module}/../capacity/figures.json")).gateway_bytes_per_connection
    <= var.gateway.heap_gib * 1073741824 * 0.95)
    error_message = "gateway: heap_gib has no room for connections_max devices, of which each takes some 33 KiB: Envoy would refuse devices earlier."
  }
  validation {
    condition     = var.gateway.drain_s >= 10 && var.gateway.drain_s <= 150
    error_message = "gateway: drain_s must be between 10 and 150: EC2 cuts the power a few minutes after it asks a machine to stop."
  }
}

variable "foundationdb" {
  type = object({
    redundancy        = optional(string)
    storage_processes = optional(number)
    memory_gib        = optional(number, 4)
    excluded          = optional(set(string), [])
  })
  default     = {}
  description = "FoundationDB's redundancy mode, the storage processes of each machine, the memory of each process, and the addresses of machines that may end because fdbcli has excluded them. Defaults: three_data_hall in three zones from 6 machines on, else double; two cores fewer than the machine has, from 2 to 8."
  validation {
    condition     = var.foundationdb.redundancy == null || contains(["double", "triple", "three_data_hall"], coalesce(var.foundationdb.redundancy, "double"))
    error_message = "foundationdb: redundancy must be double, triple or three_data_hall: with a single copy a lost disk is lost data."
  }
  validation {
    condition     = contains(range(1, 9), coalesce(var.foundationdb.storage_processes, 1))
    error_message = "foundationdb: storage_processes must be a whole number from 1 to 8."
  }
  validation {
    condition     = var.foundationdb.memory_gib >= 4
    error_message = "foundationdb: memory_gib must be at least 4: FoundationDB is killed while it recovers with less."
  }
}

variable "log_disk" {
  type = object({
    size_gib   = optional(number, 50)
    type       = optional(string, "gp3")
    iops       = optional(number, 3000)
    throughput = optional(number, 125)
  })
  default     = {}
  description = "Disk of FoundationDB's log, which each write waits for: gp3, or io2 for the lowest latency."
  validation {
    condition = contains(["gp3", "io2"], var.log_disk.type) && var.log_disk.iops <= (var.log_disk.type == "io2" ? 25000 : 16000) && (
      var.log_disk.type == "io2" ? var.log_disk.iops >= 100 : var.log_disk.iops >= 3000 && var.log_disk.throughput >= 125 && var.log_disk.throughput <= min(1000, var.log_disk.iops / 4)
    )
    error_message = "log_disk must be gp3 with 3,000 to 16,000 iops and a throughput from 125 MiB/s to a quarter of the iops, 1,000 at most, or io2 with 100 to 25,000 iops."
  }
  validation {
    condition     = var.log_disk.size_gib >= 20
    error_message = "log_disk must have 20 GiB or more."
  }
}

variable "storage_disk" {
  type = object({
    size_gib   = optional(number)
    type       = optional(string, "gp3")
    iops       = optional(number, 3000)
    throughput = optional(number, 125)
  })
  default     = {}
  description = "Disk of FoundationDB's storage processes on each machine: gp3 or io2. Default of its size: what the load asks for. AWS makes no disk smaller, so name the present size before you add machines."
  validation {
    condition = contains(["gp3", "io2"], var.storage_disk.type) && var.storage_disk.iops <= (var.storage_disk.type == "io2" ? 25000 : 16000) && (
      var.storage_disk.type == "io2" ? var.storage_disk.iops >= 100 : var.storage_disk.iops >= 3000 && var.storage_disk.throughput >= 125 && var.storage_disk.throughput <= min(1000, var.storage_disk.iops / 4)
    )
    error_message = "storage_disk must be gp3 with 3,000 to 16,000 iops and a throughput from 125 MiB/s to a quarter of the iops, 1,000 at most, or io2 with 100 to 25,000 iops."
  }
  validation {
    condition     = coalesce(var.storage_disk.size_gib, 100) >= 100
    error_message = "storage_disk must have 100 GiB or more."
  }
}

variable "telemetry" {
  type = object({
    disk_gib  = optional(number, 100)
    retention = optional(string, "30d")
  })
  default     = {}
  description = "Disk of Prometheus' measurements, and how long they are kept while four fifths of it have room for them."
  validation {
    condition     = var.telemetry.disk_gib >= 20 && var.telemetry.disk_gib <= 16384 && var.telemetry.disk_gib == floor(var.telemetry.disk_gib)
    error_message = "telemetry: disk_gib must be a whole number from 20 to 16384."
  }
  validation {
    condition     = can(regex("^[0-9]+[dwy]$", var.telemetry.retention))
    error_message = "telemetry: retention is a number and d, w or y, such as 30d."
  }
}

variable "allowed_cidrs" {
  type = object({
    devices = optional(set(string), ["0.0.0.0/0"])
    people  = optional(set(string), ["0.0.0.0/0"])
  })
  default     = {}
  description = "Networks that devices and people may come from."
  validation {
    condition = alltrue([
      for cidr in setunion(var.allowed_cidrs.devices, var.allowed_cidrs.people) : try(can(cidrnetmask(cidr)) && cidrsubnet(cidr, 0, 0) == cidr, false)
    ])
    error_message = "allowed_cidrs must be IPv4 networks, such as 203.0.113.0/24."
  }
}

variable "edge_settings" {
  type        = any
  default     = {}
  description = "Further settings of millrace.toml on the edge, such as { connections_max = 500000 }."
  validation {
    condition     = alltrue([for name in keys(var.edge_settings) : strcontains(file("${path.module}/../../../services/millrace/docs/settings.md"), "\n| `${name}` |")])
    error_message = "edge_settings has a name that no setting has: services/millrace/docs/settings.md lists them all."
  }
  validation {
    condition     = try(coalesce(var.edge_settings.drain_max_s, 60), 60) + try(coalesce(var.edge_settings.shutdown_grace_s, 10), 10) <= 150
    error_message = "edge_settings: drain_max_s and shutdown_grace_s must be 150 together at most: EC2 cuts the power a few minutes after it asks a machine to stop."
  }
  # User data and state are no place for it: both can be read by more people than the secrets. Each at sign behind a scheme is refused,
  # because a password may have a slash or a quotation mark in it.
  validation {
    condition = !(
      can(regex("://(\\\\.|[^\\s\"\\\\])*@", jsonencode(var.edge_settings))) ||
      strcontains(jsonencode(try(var.edge_settings.nats, "")), "@")
    )
    error_message = "edge_settings has an address with a user or a password, which would be in Terraform's state and in user data. For nats use nats_user with nats_password_file, nats_creds or nats_nkey, and store the file with terraform/secrets.sh. otlp_endpoint takes neither: name a collector that needs none. An at sign of a path is written %40."
  }
}

variable "control_settings" {
  type        = any
  default     = {}
  description = "Further settings of millrace.toml on the control plane, such as { sign_up = \"anybody\" }. With smtp_host its machines may connect to the port of the mail server."
  validation {
    condition     = alltrue([for name in keys(var.control_settings) : strcontains(file("${path.module}/../../../services/millrace/docs/settings.md"), "\n| `${name}` |")])
    error_message = "control_settings has a name that no setting has: services/millrace/docs/settings.md lists them all."
  }
  validation {
    condition     = try(coalesce(var.control_settings.drain_max_s, 20), 20) + try(coalesce(var.control_settings.shutdown_grace_s, 10), 10) <= 150
    error_message = "control_settings: drain_max_s and shutdown_grace_s must be 150 together at most: EC2 cuts the power a few minutes after it asks a machine to stop."
  }
  # User data and state are no place for it: both can be read by more people than the secrets. Each at sign behind a scheme is refused,
  # because a password may have a slash or a quotation mark in it.
  validation {
    condition = !(
      can(regex("://(\\\\.|[^\\s\"\\\\])*@", jsonencode(var.control_settings))) ||
      strcontains(jsonencode(try(var.control_settings.nats, "")), "@")
    )
    error_message = "control_settings has an address with a user or a password, which would be in Terraform's state and in user data. For nats use nats_user with nats_password_file, nats_creds or nats_nkey, and store the file with terraform/secrets.sh. otlp_endpoint takes neither: name a collector that needs none. An at sign of a path is written %40."
  }
}

variable "traces_to" {
  type        = string
  default     = null
  description = "OTLP/HTTP address of a store within the network, such as http://10.40.3.7:4318, that the collector passes traces and log lines on to. The telemetry machine may connect to this port of the network; the store's security group must allow that, too. Null: they are counted only."
  validation {
    condition     = var.traces_to == null || can(regex("^https?://[^/?#\\s\"@]+$", var.traces_to))
    error_message = "traces_to is an address such as http://10.40.3.7:4318, without a user, a password or a path."
  }
  validation {
    condition     = var.traces_to == null || var.artifacts.otelcol != null
    error_message = "traces_to needs a collector: artifacts.otelcol."
  }
}

variable "has_secret_key" {
  type        = bool
  default     = false
  description = "Whether edge and control plane get the setting secret_key_file; terraform/secrets.sh makes and stores FOLDER/secret-key. Decide before the first start."
}

variable "alertmanager" {
  type = object({
    targets     = list(string)
    cidr        = string
    scheme      = optional(string, "https")
    path_prefix = optional(string, "/")
  })
  default     = null
  description = "Your Alertmanager, such as { targets = [\"10.0.3.7:9093\"], cidr = \"10.0.3.0/24\" }. Prometheus may connect to its ports in cidr. Null: nobody is notified of an alert."
  validation {
    condition = var.alertmanager == null ? true : (
      length(var.alertmanager.targets) > 0 &&
      alltrue([for target in var.alertmanager.targets : can(regex("^[A-Za-z0-9.-]+:[0-9]+$", target))]) &&
      contains(["http", "https"], var.alertmanager.scheme) &&
      try(can(cidrnetmask(var.alertmanager.cidr)) && cidrsubnet(var.alertmanager.cidr, 0, 0) == var.alertmanager.cidr, false)
    )
    error_message = "alertmanager needs targets such as alerts.example.org:9093, an IPv4 network as cidr, and the scheme http or https."
  }
  validation {
    condition     = var.alertmanager == null || var.runbooks_url != null
    error_message = "alertmanager needs runbooks_url: each alert must link a runbook that opens."
  }
}

variable "runbooks_url" {
  type        = string
  default     = null
  description = "URL of the folder runbooks/ of your copy of the repository, such as https://git.example.org/millrace/blob/main/runbooks. Each alert links its page there."
  validation {
    condition     = var.runbooks_url == null || can(regex("^https?://[A-Za-z0-9._~:/%+-]+$", var.runbooks_url))
    error_message = "runbooks_url is a URL without a user, such as https://git.example.org/millrace/blob/main/runbooks. An at sign of its path is written %40."
  }
}

variable "edge_ports" {
  type        = list(object({ gateway = number, http = number }))
  default     = [{ gateway = 1884, http = 8080 }]
  description = "Ports of the pods of one edge machine. Metrics are 10 above http."
  validation {
    condition = length(var.edge_ports) >= 1 && alltrue([for port in flatten([for pod in var.edge_ports : [pod.gateway, pod.http, pod.http + 10]]) : port >= 1024 && port <= 65535]) && (
      length(distinct(flatten([for pod in var.edge_ports : [pod.gateway, pod.http, pod.http + 10]]))) == 3 * length(var.edge_ports)
    )
    error_message = "edge_ports must have one pod or more, whose ports gateway, http and http + 10 differ from each other, from 1024 to 65535."
  }
}

variable "backup_days" {
  type        = number
  default     = 35
  description = "Days whose every moment can be restored from the backup."
  validation {
    condition     = var.backup_days >= 7 && var.backup_days == floor(var.backup_days)
    error_message = "backup_days must be a whole number from 7 on: a shorter time loses the last good backup over a holiday, and 0 would remove every backup."
  }
}

variable "is_protected" {
  type        = bool
  default     = true
  description = "Keeps load balancers, secrets and full buckets from being deleted, and a snapshot of each disk of the database. Off for trials only."
}

variable "aws_endpoint" {
  type        = string
  default     = null
  description = "URL that replaces those of all AWS services, such as http://10.0.0.9:80."
}
