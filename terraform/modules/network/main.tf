data "aws_region" "here" {}
data "aws_caller_identity" "here" {}

locals {
  zones  = { for index, zone in var.availability_zones : zone => index }
  layout = { cidr = var.cidr, zones = var.availability_zones }
  nat_zones = {
    none     = []
    one      = slice(var.availability_zones, 0, 1)
    per_zone = var.availability_zones
  }[var.nat_gateways]

  # Edge machines report to Auto Scaling that they serve.
  endpoints = setunion(var.interface_endpoints, var.nat_gateways == "none" ? ["autoscaling"] : [])

  # Somebody who takes over a machine cannot carry data out with keys of another account, such as into its tags or parameters.
  # Session Manager's channels (ssmmessages) stay open: no policy for them was tried, and a wrong one would close the only shell.
  closed_endpoints = setsubtract(local.endpoints, ["ssmmessages"])
  own_account      = { "aws:PrincipalAccount" = data.aws_caller_identity.here.account_id }
}

# Each subnet's zone and addresses come from these, and so do those of FoundationDB's machines with their disks: with another cidr, other
# zones or another order one plan would replace them all. So the network remembers what it was made with.
resource "terraform_data" "layout" {
  input = local.layout
  lifecycle { ignore_changes = [input] }
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = { Name = var.name }
}

# A machine that is started without a group of its own can reach nothing.
resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = "${var.name}-closed" }
}

resource "aws_flow_log" "this" {
  vpc_id                   = aws_vpc.this.id
  log_destination_type     = "s3"
  log_destination          = var.logs_bucket_arn
  traffic_type             = "REJECT"
  max_aggregation_interval = 600
  tags                     = { Name = var.name }
}

# Load balancers and NAT gateways; no machine of Millrace.
resource "aws_subnet" "public" {
  for_each                = local.zones
  vpc_id                  = aws_vpc.this.id
  availability_zone       = each.key
  cidr_block              = cidrsubnet(var.cidr, 8, 240 + each.value)
  map_public_ip_on_launch = false
  tags                    = { Name = "${var.name}-public-${each.key}" }
}

resource "aws_subnet" "private" {
  for_each                = local.zones
  vpc_id                  = aws_vpc.this.id
  availability_zone       = each.key
  cidr_block              = cidrsubnet(var.cidr, 4, each.value)
  map_public_ip_on_launch = false
  tags                    = { Name = "${var.name}-private-${each.key}" }
}

# FoundationDB's and NATS' machines have fixed addresses here, and so has the telemetry machine with a collector. AWS gives none of
# these to another machine, so they are free when such a machine is replaced.
resource "aws_ec2_subnet_cidr_reservation" "fixed" {
  for_each         = local.zones
  subnet_id        = aws_subnet.private[each.key].id
  cidr_block       = cidrsubnet(aws_subnet.private[each.key].cidr_block, 4, 0)
  reservation_type = "explicit"
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = var.name }
}

resource "aws_route_table" "public" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = "${var.name}-public" }
}

resource "aws_route" "internet" {
  route_table_id         = aws_route_table.public.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_route_table_association" "public" {
  for_each       = aws_subnet.public
  subnet_id      = each.value.id
  route_table_id = aws_route_table.public.id
}

resource "aws_eip" "nat" {
  for_each = toset(local.nat_zones)
  domain   = "vpc"
  tags     = { Name = "${var.name}-nat-${each.key}" }
}

resource "aws_nat_gateway" "this" {
  for_each      = toset(local.nat_zones)
  allocation_id = aws_eip.nat[each.key].id
  subnet_id     = aws_subnet.public[each.key].id
  tags          = { Name = "${var.name}-${each.key}" }
  depends_on    = [aws_internet_gateway.this]
}

resource "aws_route_table" "private" {
  for_each = local.zones
  vpc_id   = aws_vpc.this.id
  tags     = { Name = "${var.name}-private-${each.key}" }
}

resource "aws_route" "nat" {
  for_each               = var.nat_gateways == "none" ? {} : local.zones
  route_table_id         = aws_route_table.private[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this[var.nat_gateways == "one" ? local.nat_zones[0] : each.key].id
}

resource "aws_route_table_association" "private" {
  for_each       = aws_subnet.private
  subnet_id      = each.value.id
  route_table_id = aws_route_table.private[each.key].id
}

resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.this.id
  service_name      = "com.amazonaws.${data.aws_region.here.name}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [for zone in var.availability_zones : aws_route_table.private[zone].id]
  policy = jsonencode({ Version = "2012-10-17", Statement = [{
    Effect    = "Allow", Principal = "*", Action = "*", Resource = "*"
    Condition = { StringEquals = merge(local.own_account, { "aws:ResourceAccount" = data.aws_caller_identity.here.account_id }) }
  }] })
  tags = { Name = "${var.name}-s3" }
}

resource "aws_security_group" "endpoints" {
  name        = "${var.name}-endpoints"
  description = "AWS services inside the network"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = "${var.name}-endpoints" }
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  security_group_id = aws_security_group.endpoints.id
  description       = "machines of the region"
  cidr_ipv4         = var.cidr
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_endpoint" "interface" {
  for_each            = local.endpoints
  vpc_id              = aws_vpc.this.id
  service_name        = "com.amazonaws.${data.aws_region.here.name}.${each.key}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = [for zone in var.availability_zones : aws_subnet.private[zone].id]
  security_group_ids  = [aws_security_group.endpoints.id]
  policy = !contains(local.closed_endpoints, each.key) ? null : jsonencode({ Version = "2012-10-17", Statement = [{
    Effect    = "Allow", Principal = "*", Action = "*", Resource = "*"
    Condition = { StringEquals = local.own_account }
  }] })
  tags = { Name = "${var.name}-${each.key}" }
}
