locals {
  zones = length(var.network.private_subnets)

  # Addresses are known beforehand: the servers' routes and the pods' settings name them. They are in the block that modules/network
  # reserves for machines with fixed addresses.
  machines = { for index in range(var.machine_count) : "nats-${index + 1}" => {
    subnet  = var.network.private_subnets[index % local.zones]
    address = cidrhost(var.network.private_subnets[index % local.zones].cidr, 200 + index)
  } }
  addresses = [for index in range(var.machine_count) : local.machines["nats-${index + 1}"].address]
}

module "machine" {
  for_each  = local.machines
  source    = "../machine"
  name      = "${var.name}-${each.key}"
  role      = "bus"
  boot      = merge(var.boot, { secret_owner = "nats", secret_folder = "/etc/nats/secrets" })
  artifacts = var.artifacts
  users     = ["nats"]
  units     = ["nats.service"]
  files = {
    "/etc/nats/nats.conf" = {
      content = templatefile("${path.module}/files/nats.conf.tftpl", {
        name    = each.key
        cluster = var.name
        address = each.value.address
        others  = [for address in local.addresses : address if address != each.value.address]
      })
    }
    "/etc/systemd/system/nats.service" = { content = file("${path.module}/files/nats.service") }
  }
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
    "millrace-role"   = "nats"
  }
}
