data "aws_region" "here" {}

locals {
  name   = "${var.name}-telemetry"
  subnet = var.network.private_subnets[0]

  folder = "${path.module}/../../../dashboards/prometheus/rules"
  # In the files the links of alerts are relative to the repository.
  runbooks = var.runbooks_url == null ? "runbooks" : trimsuffix(var.runbooks_url, "/")
  rules = merge({ "/etc/prometheus/rules/machines.yaml" = { content = local.wanted } }, {
    for name in fileset(local.folder, "*.yaml") : "/etc/prometheus/rules/${name}" => {
      # Without comments: user data is 16 KiB at most.
      content = replace(replace(file("${local.folder}/${name}"), "/(?m)^ *#.*\n/", ""), "runbook_url: runbooks/", "runbook_url: ${local.runbooks}/")
    }
  })
  # Service discovery forgets a machine that is gone; the alert MachinesMissing compares with these.
  wanted = yamlencode({ groups = [{
    name = "machines"
    rules = [for role, count in var.machines : {
      record = "region_machines_wanted", expr = "vector(${count})", labels = { role = role }
    }]
  }] })
  prometheus = templatefile("${path.module}/files/prometheus.yml.tftpl", {
    name         = var.name
    region       = data.aws_region.here.name
    targets      = var.targets
    statuses     = { nats = "127.0.0.1:7777", foundationdb = "${var.foundationdb_address}:7777" }
    alertmanager = var.alertmanager
  })
}

module "machine" {
  source     = "../machine"
  name       = var.name
  role       = "telemetry"
  boot       = var.boot
  artifacts  = var.artifacts
  users      = ["prometheus"]
  owners     = { "/var/lib/prometheus" = "prometheus" }
  statements = [{ sid = "FindTargets", actions = ["ec2:DescribeInstances", "ec2:DescribeAvailabilityZones"], resources = ["*"] }]
  disks = [{
    device = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${replace(aws_ebs_volume.this.id, "-", "")}"
    path   = "/var/lib/prometheus"
  }]
  units = ["prometheus.service", "millrace-status.service"]
  files = merge(local.rules, {
    "/etc/prometheus/prometheus.yml"            = { content = local.prometheus }
    "/usr/local/lib/millrace/status_metrics.py" = { content = file("${path.module}/../../../dashboards/collector/status_metrics.py") }
    "/etc/systemd/system/millrace-status.service" = {
      content = templatefile("${path.module}/files/millrace-status.service.tftpl", { nats_addresses = var.nats_addresses })
    }
    "/etc/systemd/system/prometheus.service" = {
      content = templatefile("${path.module}/files/prometheus.service.tftpl", {
        retention = var.retention
        # Prometheus stops on a full disk, so it removes the oldest measurements before.
        size_gib = floor(var.disk_gib * 0.8)
      })
    }
  })
}

resource "aws_ebs_volume" "this" {
  availability_zone = local.subnet.zone
  size              = var.disk_gib
  type              = "gp3"
  encrypted         = true
  kms_key_id        = var.kms_key_arn
  tags              = { Name = local.name }
}

resource "aws_instance" "this" {
  ami                         = var.ami_id
  instance_type               = var.instance_type
  subnet_id                   = local.subnet.id
  associate_public_ip_address = false
  vpc_security_group_ids      = [var.security_group_id]
  iam_instance_profile        = module.machine.instance_profile
  user_data_base64            = module.machine.user_data_base64
  user_data_replace_on_change = true
  ebs_optimized               = true
  monitoring                  = true

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
    tags        = { Name = local.name }
  }

  tags = {
    Name              = local.name
    "millrace-region" = var.name
    "millrace-role"   = "telemetry"
  }
}

resource "aws_volume_attachment" "this" {
  device_name                    = "/dev/sdf"
  volume_id                      = aws_ebs_volume.this.id
  instance_id                    = aws_instance.this.id
  stop_instance_before_detaching = true
}
