data "aws_region" "here" {}

locals {
  zones      = length(var.network.private_subnets)
  redundancy = coalesce(var.redundancy, local.zones >= 3 && var.machine_count >= 6 ? "three_data_hall" : "double")

  # Addresses are known beforehand: the cluster file names them.
  machines = { for index in range(var.machine_count) : "foundationdb-${index + 1}" => {
    subnet  = var.network.private_subnets[index % local.zones]
    address = cidrhost(var.network.private_subnets[index % local.zones].cidr, 10 + index)
  } }
  addresses = [for index in range(var.machine_count) : local.machines["foundationdb-${index + 1}"].address]

  # Machines that the plan would end, with the only copies of what nobody has moved off them.
  leaving = setsubtract(data.aws_instances.present.private_ips, concat(local.addresses, tolist(var.excluded)))

  # A cluster file with other coordinators under the same id would let its machine elect a second leader, and only FoundationDB
  # itself changes both. So the file stays as it was when the database was made, however many machines are added.
  coordinators = slice(local.addresses, 0, min(terraform_data.coordinators.input, var.machine_count))
  cluster_file = "millrace:millrace@${join(",", [for address in local.coordinators : "${address}:4500:tls"])}"

  backup_url = "blobstore://@s3.${data.aws_region.here.name}.amazonaws.com/millrace?bucket=${var.backups.id}&region=${data.aws_region.here.name}&sc=1"

  # 4500 is the log, then come the storage processes, then one without data.
  last_port = 4501 + var.storage_processes
  disks     = { log = var.log_disk, storage = var.storage_disk }
}

data "aws_ec2_instance_type" "this" {
  instance_type = var.instance_type
}

# A plan does not see what is no longer configured, so AWS is asked which machines there are.
data "aws_instances" "present" {
  instance_tags        = { "millrace-region" = var.name, "millrace-role" = "foundationdb" }
  instance_state_names = ["pending", "running", "stopping", "stopped"]
}

resource "terraform_data" "coordinators" {
  # With these numbers a majority is left when a zone is lost.
  input = var.machine_count >= 9 ? 9 : var.machine_count >= 6 ? 5 : 3
  lifecycle { ignore_changes = [input] }
}

module "machine" {
  for_each  = local.machines
  source    = "../machine"
  name      = "${var.name}-${each.key}"
  role      = "store"
  boot      = merge(var.boot, { secret_owner = "foundationdb", secret_folder = "/etc/foundationdb/tls" })
  artifacts = var.artifacts
  disks = [for kind in ["log", "storage"] : {
    device = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${replace(aws_ebs_volume.this["${each.key}-${kind}"].id, "-", "")}"
    path   = "/var/lib/foundationdb/${kind}"
  }]
  owners = {
    "/etc/foundationdb/fdb.cluster" = "foundationdb"
    "/var/lib/foundationdb/log"     = "foundationdb"
    "/var/lib/foundationdb/storage" = "foundationdb"
  }
  units = concat(
    ["millrace-backup-credentials.timer", "foundationdb.service"],
    # One machine makes the database, starts its backup, removes old backups and shows the cluster's status. Every machine's agent writes the backup.
    each.key == "foundationdb-1" ? ["millrace-foundationdb.service", "millrace-backup-expire.timer", "millrace-status.service"] : [],
  )
  statements = [
    {
      sid       = "Backups"
      actions   = ["s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
      resources = ["${var.backups.arn}/*"]
    },
    { sid = "ListBackups", actions = ["s3:ListBucket"], resources = [var.backups.arn] },
    { sid = "KeyOfBackups", actions = ["kms:GenerateDataKey"], resources = [var.kms_key_arn], via = "s3" },
  ]
  files = merge({
    "/etc/foundationdb/fdb.cluster" = { content = "${local.cluster_file}\n" }
    "/etc/foundationdb/foundationdb.conf" = {
      content = templatefile("${path.module}/files/foundationdb.conf.tftpl", {
        address           = each.value.address
        machine           = each.key
        zone              = each.value.subnet.zone
        storage_processes = var.storage_processes
        memory_gib        = var.memory_gib
        stateless_port    = local.last_port
      })
    }
    # For people: fdbcli and fdbbackup, which reach the cluster and S3, in a login shell of root.
    "/etc/profile.d/millrace-foundationdb.sh" = {
      content = join("", [for name, value in {
        FDB_TLS_CERTIFICATE_FILE = "/etc/foundationdb/tls/tls.crt"
        FDB_TLS_KEY_FILE         = "/etc/foundationdb/tls/tls.key"
        FDB_TLS_CA_FILE          = "/etc/foundationdb/authorities.crt"
        FDB_TLS_VERIFY_PEERS     = "Check.Valid=1,R.CN=region,S.CN=foundationdb|Check.Valid=1,S.subjectAltName<=DNS:.amazonaws.com"
        FDB_BLOB_CREDENTIALS     = "/etc/foundationdb/blob-credentials.json"
        BACKUP_URL               = local.backup_url
      } : "export ${name}='${value}'\n"])
    }
    "/usr/local/lib/millrace/status_metrics.py" = { content = file("${path.module}/../../../dashboards/collector/status_metrics.py") }
    "/etc/systemd/system/millrace-status.service" = {
      content = templatefile("${path.module}/files/millrace-status.service.tftpl", { address = each.value.address })
    }
    "/etc/systemd/system/foundationdb.service.d/millrace.conf" = { content = file("${path.module}/files/foundationdb.conf") }
    },
    # Only there, so that more machines or more copies make no other machine outdated.
    { for name, file in {
      "/usr/local/sbin/millrace-foundationdb" = {
        mode = "0755"
        content = templatefile("${path.module}/files/millrace-foundationdb.sh.tftpl", {
          redundancy    = local.redundancy
          machine_count = var.machine_count
          backup_days   = var.backup_days
          backup_url    = local.backup_url
        })
      }
    } : name => file if each.key == "foundationdb-1" },
    {
      for name in fileset("${path.module}/files", "*.{service,timer}") :
      "/etc/systemd/system/${name}" => { content = file("${path.module}/files/${name}") }
    },
  )
}

resource "aws_ebs_volume" "this" {
  for_each = merge([for name, machine in local.machines : {
    for kind, disk in local.disks : "${name}-${kind}" => merge(disk, { zone = machine.subnet.zone })
  }]...)
  availability_zone = each.value.zone
  size              = each.value.size_gib
  type              = each.value.type
  iops              = each.value.iops
  throughput        = each.value.type == "gp3" ? each.value.throughput : null
  encrypted         = true
  kms_key_id        = var.kms_key_arn
  # Terraform can delete the disk of a protected region too; the snapshot stays.
  final_snapshot = var.is_protected
  tags           = { Name = "${var.name}-${each.key}" }
}

resource "aws_instance" "this" {
  for_each                    = local.machines
  ami                         = var.ami_id
  instance_type               = var.instance_type
  subnet_id                   = each.value.subnet.id
  private_ip                  = each.value.address
  associate_public_ip_address = false
  vpc_security_group_ids      = [var.security_group_id]
  iam_instance_profile        = module.machine[each.key].instance_profile
  user_data_base64            = module.machine[each.key].user_data_base64
  disable_api_termination     = var.is_protected
  ebs_optimized               = true
  monitoring                  = true

  # A plan must not replace all machines at once, nor stop them all at once to change their type. The output "outdated" names those to
  # replace one after another with -replace.
  lifecycle { ignore_changes = [ami, instance_type, user_data_base64] }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_size = 20
    volume_type = "gp3"
    encrypted   = true
    kms_key_id  = var.kms_key_arn
    tags        = { Name = "${var.name}-${each.key}" }
  }

  tags = {
    Name              = "${var.name}-${each.key}"
    "millrace-region" = var.name
    "millrace-role"   = "foundationdb"
  }
}

resource "aws_volume_attachment" "this" {
  for_each = merge([for name in keys(local.machines) : {
    for kind, device in { log = "/dev/sdf", storage = "/dev/sdg" } : "${name}-${kind}" => { machine = name, device = device }
  }]...)
  device_name = each.value.device
  volume_id   = aws_ebs_volume.this[each.key].id
  instance_id = aws_instance.this[each.value.machine].id
  # Written data first: the machine is stopped before its disks are taken off.
  stop_instance_before_detaching = true
}
