data "aws_region" "here" {}

locals {
  name   = "${var.name}-telemetry"
  subnet = var.network.private_subnets[0]
  # Known beforehand, because the pods' settings name the collector.
  address = cidrhost(local.subnet.cidr, 190)

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
  # Without comments and documentation, as in modules/machine: user data is 16 KiB at most.
  status_metrics = replace(
    replace(file("${path.module}/../../../dashboards/collector/status_metrics.py"), "/(?m)^ *#[^!].*\n/", ""), "/(?ms)^ +\"\"\".*?\"\"\"\n/", ""
  )
  prometheus = templatefile("${path.module}/files/prometheus.yml.tftpl", {
    name    = var.name
    region  = data.aws_region.here.name
    targets = var.targets
    statuses = merge(
      { nats = "127.0.0.1:7777", foundationdb = "${var.foundationdb_address}:7777" },
      var.collector == null ? {} : { collector = "127.0.0.1:8888" },
    )
    alertmanager = var.alertmanager
  })
  # The configuration of dashboards/ without its scrapes: Prometheus finds the machines itself.
  template = yamldecode(file("${path.module}/../../../dashboards/collector/config.yaml"))
  exporter = try(var.collector.export_to, null) == null ? { debug = local.template.exporters.debug } : { otlp_http = { endpoint = var.collector.export_to } }
  collector = var.collector == null ? {} : {
    # JSON is YAML.
    "/etc/otelcol.yaml" = { content = jsonencode(merge(local.template, {
      receivers = { otlp = local.template.receivers.otlp }
      exporters = merge({ prometheus = local.template.exporters.prometheus }, local.exporter)
      service = merge(local.template.service, { pipelines = {
        for kind, pipeline in local.template.service.pipelines : kind => merge(pipeline, {
          receivers = ["otlp"], exporters = kind == "metrics" ? ["prometheus"] : keys(local.exporter)
        })
      } })
    })) }
    "/etc/systemd/system/millrace-collector.service" = {
      content = templatefile("${path.module}/files/millrace-collector.service.tftpl", { address = local.address })
    }
  }
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
  units = concat(["prometheus.service", "millrace-status.service"], var.collector == null ? [] : ["millrace-collector.service"])
  files = merge(local.rules, local.collector, {
    "/etc/prometheus/prometheus.yml"            = { content = local.prometheus }
    "/usr/local/lib/millrace/status_metrics.py" = { content = local.status_metrics }
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
  private_ip                  = var.collector == null ? null : local.address
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
