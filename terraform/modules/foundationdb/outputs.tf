output "cluster_file" {
  value       = local.cluster_file
  description = "Contents of fdb.cluster. Clients also need a certificate of the region's authority."
  precondition {
    condition     = var.machine_count >= terraform_data.coordinators.input
    error_message = "the first ${terraform_data.coordinators.input} machines are the cluster's coordinators, and a cluster file with fewer would let a machine elect a second leader: keep at least ${terraform_data.coordinators.input} machines."
  }
}

output "last_port" {
  value       = local.last_port
  description = "Clients connect to the ports from 4500 to this one."
}

output "addresses" {
  value       = local.addresses
  description = "Addresses of the machines."
  precondition {
    condition     = length(local.leaving) == 0
    error_message = "this plan would end machines of FoundationDB, with their disks, whose data nobody has moved: ${join(", ", sort(local.leaving))}. Keep machine_count (counts.foundationdb, or load) and the zones as they are. To have fewer machines, exclude these first, and then name them in excluded: runbooks/scale.md says how."
  }
  precondition {
    condition     = length(setintersection(var.excluded, local.addresses)) == 0
    error_message = "excluded names machines that machine_count asks for: ${join(", ", sort(setintersection(var.excluded, local.addresses)))}. Remove them from the list, and let them store data again by `fdbcli --exec 'include ADDRESS'`."
  }
}

output "redundancy" {
  value       = local.redundancy
  description = "FoundationDB's redundancy mode, to which foundationdb-1 raises it when all machines have joined."
}

output "cloud_config" {
  value       = { for name, machine in module.machine : name => machine.cloud_config }
  description = "User data of each machine in plain text."
}

output "memory_gib" {
  value       = data.aws_ec2_instance_type.this.memory_size / 1024
  description = "Memory of a machine."
  precondition {
    condition     = data.aws_ec2_instance_type.this.memory_size >= (var.storage_processes + 2) * var.memory_gib * 1024
    error_message = "${var.instance_type} has ${data.aws_ec2_instance_type.this.memory_size / 1024} GiB of memory, and ${var.storage_processes + 2} processes of FoundationDB may use ${var.memory_gib} GiB each: the kernel would kill them. Choose a type with more memory, or fewer storage_processes."
  }
}

output "outdated" {
  value = [
    for name, machine in aws_instance.this : name
    if machine.ami != var.ami_id || machine.instance_type != var.instance_type || machine.user_data_base64 != module.machine[name].user_data_base64
  ]
  description = "Machines of another type, or with an older image or user data."
}

output "disks" {
  value       = aws_ebs_volume.this
  description = "The disks, for tests."
}
